// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Intent says what a RescheduleRequest is for. The words are those of Kubernetes'
// EvictionRequest (KEP-4563), but for Relocation.
//
// +kubebuilder:validation:Enum=Eviction;Relocation;Withdrawn
type Intent string

const (
	// IntentEviction has a pod leave a Node that is drained.
	IntentEviction Intent = "Eviction"
	// IntentRelocation has a pod leave a Node that nobody drains, because its policy says so.
	IntentRelocation Intent = "Relocation"
	// IntentWithdrawn says that nobody wants the pod to leave any more: what was put on it is
	// about to be taken away.
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

// RescheduleRequestSpec says of which pod an operator was asked what. It is written before the
// operator is asked, so that what was put on a pod is always known. Only its intent changes, and when
// something became of it.
//
// +kubebuilder:validation:XValidation:rule="self.pod == oldSelf.pod && self.nodeName == oldSelf.nodeName && self.policy == oldSelf.policy && self.request == oldSelf.request",message="only the intent of a request can change"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.askedTime) || has(self.askedTime) && self.askedTime == oldSelf.askedTime",fieldPath=".askedTime",message="an operator that was asked has been asked since then"
// +kubebuilder:validation:XValidation:rule="oldSelf.intent != 'Withdrawn' || self.intent == 'Withdrawn'",fieldPath=".intent",message="a request that was withdrawn stays so: a new one is made once it is gone"
type RescheduleRequestSpec struct {
	// pod is the one to be moved.
	// +required
	Pod PodReference `json:"pod,omitempty,omitzero"`

	// nodeName is where it runs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// policy is the one that selected it.
	// +required
	Policy PolicyReference `json:"policy,omitempty,omitzero"`

	// request is what was put on it.
	// +required
	Request Request `json:"request,omitempty,omitzero"`

	// tracking is the object that has a mark for it, if one has.
	// +optional
	Tracking *TrackingReference `json:"tracking,omitempty"`

	// requester is the user who wanted to evict it first.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Requester string `json:"requester,omitempty"`

	// intent says what the request is for.
	// +required
	Intent Intent `json:"intent,omitempty"`

	// queuedTime is when it took its place in the line of its policy anew, because its operator
	// had not been asked for a while.
	// +optional
	QueuedTime metav1.Time `json:"queuedTime,omitempty,omitzero"`

	// askedTime is when its operator was asked first, absent if it was not yet, or by somebody else only. The
	// deadline begins then, whatever becomes of what was put on the pod.
	// +optional
	AskedTime metav1.Time `json:"askedTime,omitempty,omitzero"`

	// withdrawnTime is when it was withdrawn.
	// +optional
	WithdrawnTime metav1.Time `json:"withdrawnTime,omitempty,omitzero"`

	// podGoneTime is when its pod was first seen to be gone or finished. The request stays for some minutes after that.
	// +optional
	PodGoneTime metav1.Time `json:"podGoneTime,omitempty,omitzero"`
}

// PodReference is exactly one pod, of the namespace of whoever refers to it.
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

// PolicyReference is a policy. One of a namespace is of that of whoever refers to it.
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

// TrackingReference is the object that has a mark of Couchbase's eviction reschedule hook.
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

// RescheduleRequest says that an operator was asked to move a pod. Its name is the UID of the pod. The
// eviction guard and the manager of 5-Spot make it, and the guard deletes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=reschedulerequests,scope=Namespaced
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.pod.name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy.name`
// +kubebuilder:printcolumn:name="Intent",type=string,JSONPath=`.spec.intent`
// +kubebuilder:printcolumn:name="Asked",type=date,JSONPath=`.spec.askedTime`
// +kubebuilder:printcolumn:name="Gone",type=date,JSONPath=`.spec.podGoneTime`
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
