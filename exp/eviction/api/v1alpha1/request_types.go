// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Intent is the purpose of a RescheduleRequest. Except for Relocation, Kubernetes' EvictionRequest (KEP-4563) has the
// same values.
//
// +kubebuilder:validation:Enum=Eviction;Relocation;Withdrawn
type Intent string

const (
	// IntentEviction means that the pod leaves a Node that is being drained.
	IntentEviction Intent = "Eviction"
	// IntentRelocation means that the pod leaves a Node that is not being drained, because its policy relocates it.
	IntentRelocation Intent = "Relocation"
	// IntentWithdrawn means that the pod may stay: what was written on it is about to be removed.
	IntentWithdrawn Intent = "Withdrawn"
)

// PolicyKind is the kind of a policy.
//
// +kubebuilder:validation:Enum=ReschedulePolicy;ClusterReschedulePolicy
type PolicyKind string

const (
	// NamespacedPolicy is the kind of a policy for one namespace.
	NamespacedPolicy PolicyKind = "ReschedulePolicy"
	// ClusterPolicy is the kind of a policy for several.
	ClusterPolicy PolicyKind = "ClusterReschedulePolicy"
)

// RescheduleRequestSpec names the pod, and what was written on it to request its move. It is stored before the pod is
// changed, so that what was written is always known. Only its intent and its times change.
//
// +kubebuilder:validation:XValidation:rule="self.pod == oldSelf.pod && self.nodeName == oldSelf.nodeName && self.policy == oldSelf.policy && self.request == oldSelf.request",message="only the intent of a request can change"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.requestedTime) || has(self.requestedTime) && self.requestedTime == oldSelf.requestedTime",fieldPath=".requestedTime",message="must not change once it is set"
// +kubebuilder:validation:XValidation:rule="oldSelf.intent != 'Withdrawn' || self.intent == 'Withdrawn'",fieldPath=".intent",message="a withdrawn request stays withdrawn: 5-Spot creates another after it is deleted"
type RescheduleRequestSpec struct {
	// pod is the pod to move.
	// +required
	Pod PodReference `json:"pod,omitempty,omitzero"`

	// nodeName is the Node of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// policy is the policy that selected it.
	// +required
	Policy PolicyReference `json:"policy,omitempty,omitzero"`

	// request is what was written on the pod.
	// +required
	Request Request `json:"request,omitempty,omitzero"`

	// tracking is the object with the mark for the pod, absent without one.
	// +optional
	Tracking *TrackingReference `json:"tracking,omitempty"`

	// requester is the user of the first eviction.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Requester string `json:"requester,omitempty"`

	// intent is what the request is for.
	// +required
	Intent Intent `json:"intent,omitempty"`

	// queuedTime is when the request was put at the end of its policy's queue again, because no eviction of the pod
	// had arrived for some time.
	// +optional
	QueuedTime metav1.Time `json:"queuedTime,omitempty,omitzero"`

	// requestedTime is when the guard or the manager first requested the move, absent if neither did. The deadline begins
	// then, whatever happens to what was written on the pod.
	// +optional
	RequestedTime metav1.Time `json:"requestedTime,omitempty,omitzero"`

	// withdrawnTime is when it was withdrawn.
	// +optional
	WithdrawnTime metav1.Time `json:"withdrawnTime,omitempty,omitzero"`

	// podTerminatedTime is when its pod was first observed to be gone or finished. The request stays for some minutes
	// after that.
	// +optional
	PodTerminatedTime metav1.Time `json:"podTerminatedTime,omitempty,omitzero"`
}

// PodReference identifies one pod in the namespace of the object that refers to it.
type PodReference struct {
	// name of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// uid of the pod.
	// +required
	UID types.UID `json:"uid,omitempty"`
}

// PolicyReference names a policy. A ReschedulePolicy is in the namespace of the object that refers to it.
type PolicyReference struct {
	// kind of the policy.
	// +required
	Kind PolicyKind `json:"kind,omitempty"`

	// name of the policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// TrackingReference is the object with a mark of Couchbase's eviction reschedule hook.
type TrackingReference struct {
	// type of the object.
	// +required
	Type TrackingType `json:"type,omitempty"`

	// name of the object. A CouchbaseCluster is in the namespace of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// RescheduleRequest records that an operator was requested to move a pod. Its name is the UID of the pod. The
// eviction guard and the manager of 5-Spot create it, and the guard deletes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=reschedulerequests,scope=Namespaced
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod.name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy.name`
// +kubebuilder:printcolumn:name="Intent",type=string,JSONPath=`.spec.intent`
// +kubebuilder:printcolumn:name="Requested",type=date,JSONPath=`.spec.requestedTime`
// +kubebuilder:printcolumn:name="Terminated",type=date,JSONPath=`.spec.podTerminatedTime`
// +kubebuilder:printcolumn:name="Requester",type=string,JSONPath=`.spec.requester`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RescheduleRequest struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// +required
	Spec RescheduleRequestSpec `json:"spec,omitempty,omitzero"`
}

// RescheduleRequestList is a list of RescheduleRequests.
//
// +kubebuilder:object:root=true
type RescheduleRequestList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []RescheduleRequest `json:"items"`
}
