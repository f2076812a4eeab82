// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HealthyNode is what happens to an eviction from a Node that is not being drained.
//
// +kubebuilder:validation:Enum=Allow;Relocate;Deny
type HealthyNode string

const (
	// HealthyNodeAllow leaves the eviction to the API server's own checks.
	HealthyNodeAllow HealthyNode = "Allow"
	// HealthyNodeRelocate requests the move from the operator, as on a Node that is drained.
	HealthyNodeRelocate HealthyNode = "Relocate"
	// HealthyNodeDeny refuses the eviction.
	HealthyNodeDeny HealthyNode = "Deny"
)

// Fallback is what happens to a pod that was not moved before its deadline.
//
// +kubebuilder:validation:Enum=Allow;Deny;Delete
type Fallback string

const (
	// FallbackAllow leaves the eviction to the API server's own checks, such as disruption budgets.
	FallbackAllow Fallback = "Allow"
	// FallbackDeny refuses the eviction while the Node is drained.
	FallbackDeny Fallback = "Deny"
	// FallbackDelete deletes the pod with its own grace period, without regard to disruption budgets. The eviction
	// guard deletes no pods in kube-system and 5spot-system.
	FallbackDelete Fallback = "Delete"
)

// TrackingType is the object on which the mark of Couchbase's eviction reschedule hook is written.
//
// +kubebuilder:validation:Enum=None;Namespace;CouchbaseCluster
type TrackingType string

const (
	// TrackingNone writes no mark.
	TrackingNone TrackingType = "None"
	// TrackingNamespace writes the mark on the pod's Namespace.
	TrackingNamespace TrackingType = "Namespace"
	// TrackingCouchbaseCluster writes the mark on the CouchbaseCluster that the label couchbase_cluster of the pod
	// names, if that is upgraded in place.
	TrackingCouchbaseCluster TrackingType = "CouchbaseCluster"
)

// Request is what is written on a pod so that its operator moves it.
//
// +kubebuilder:validation:XValidation:rule="has(self.annotation) != has(self.label)",message="set exactly one of annotation and label"
type Request struct {
	// annotation is put on the pod.
	// +optional
	Annotation *Annotation `json:"annotation,omitempty"`

	// label is put on the pod.
	// +optional
	Label *Label `json:"label,omitempty"`
}

// Annotation is a key and a value.
type Annotation struct {
	// key of the annotation, such as cao.couchbase.com/reschedule.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="must be the key of an annotation, such as cao.couchbase.com/reschedule"
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|[.])kubernetes[.]io/|(^|[.])k8s[.]io/')",message="keys of Kubernetes are reserved"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('5spot.finos.org/')",message="keys of 5-Spot are reserved"
	Key string `json:"key,omitempty"`

	// value of the annotation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// Label is a key and a value.
type Label struct {
	// key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="must be the key of a label, such as example.com/move"
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|[.])kubernetes[.]io/|(^|[.])k8s[.]io/')",message="keys of Kubernetes are reserved"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('5spot.finos.org/')",message="keys of 5-Spot are reserved"
	Key string `json:"key,omitempty"`

	// value of the label.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="must be the value of a label: letters, digits, '-', '_' and '.', and it begins and ends with a letter or digit"
	Value string `json:"value,omitempty"`
}

// ReschedulePolicySpec selects the pods that an operator moves, how the move is requested, and how long it may take.
//
// +kubebuilder:validation:XValidation:rule="!has(self.request.label) || !has(self.podSelector.matchLabels) || !(self.request.label.key in self.podSelector.matchLabels)",fieldPath=".request.label",message="must not be a label in podSelector.matchLabels: the policy would not select a marked pod any more"
type ReschedulePolicySpec struct {
	// podSelector selects the pods, by their labels. It must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",fieldPath=".matchExpressions",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",fieldPath=".matchExpressions",message="values must be given with In and NotIn, and with no other operator"
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && self.matchLabels.size() > 0 || has(self.matchExpressions) && self.matchExpressions.size() > 0",message="must select by at least one label: a policy for all pods would also hold pods without an operator"
	PodSelector metav1.LabelSelector `json:"podSelector,omitempty,omitzero"`

	// request is how the move is requested from the operator.
	// +required
	Request Request `json:"request,omitempty,omitzero"`

	// tracking is the object on which the mark reschedule.hook/NAMESPACE.POD is written while a pod waits, as
	// Couchbase's eviction reschedule hook does. 5-Spot does not read it.
	// +optional
	// +kubebuilder:default=None
	Tracking TrackingType `json:"tracking,omitempty"`

	// healthyNode is what happens to an eviction from a Node that is not being drained.
	// +optional
	// +kubebuilder:default=Allow
	HealthyNode HealthyNode `json:"healthyNode,omitempty"`

	// deadlineSeconds is how long the operator has to move a pod, from the request on.
	// +optional
	// +kubebuilder:default=14400
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`

	// fallback is what happens to a pod that was not moved by then.
	// +optional
	// +kubebuilder:default=Allow
	Fallback Fallback `json:"fallback,omitempty"`

	// maxConcurrent is the largest number of pods of the policy in one namespace for which a move is requested at the
	// same time. Zero is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`
}

// ClusterReschedulePolicySpec is a ReschedulePolicySpec for pods of several namespaces.
type ClusterReschedulePolicySpec struct {
	// namespaceSelector selects the namespaces, by their labels. Empty is all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",fieldPath=".matchExpressions",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",fieldPath=".matchExpressions",message="values must be given with In and NotIn, and with no other operator"
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitempty,omitzero"`

	ReschedulePolicySpec `json:",inline"`
}

// ReschedulePolicy selects the pods of its namespace that an operator moves. If several select a pod, the first by
// name applies. It comes before every ClusterReschedulePolicy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=reschedulepolicies,scope=Namespaced
// +kubebuilder:printcolumn:name="Healthy Node",type=string,JSONPath=`.spec.healthyNode`
// +kubebuilder:printcolumn:name="Deadline",type=integer,JSONPath=`.spec.deadlineSeconds`
// +kubebuilder:printcolumn:name="Fallback",type=string,JSONPath=`.spec.fallback`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReschedulePolicy struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// +required
	Spec ReschedulePolicySpec `json:"spec,omitempty,omitzero"`
}

// ReschedulePolicyList is a list of ReschedulePolicies.
//
// +kubebuilder:object:root=true
type ReschedulePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []ReschedulePolicy `json:"items"`
}

// ClusterReschedulePolicy selects the pods of several namespaces that an operator moves. If several select a pod, the
// first by name applies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterreschedulepolicies,scope=Cluster
// +kubebuilder:printcolumn:name="Healthy Node",type=string,JSONPath=`.spec.healthyNode`
// +kubebuilder:printcolumn:name="Deadline",type=integer,JSONPath=`.spec.deadlineSeconds`
// +kubebuilder:printcolumn:name="Fallback",type=string,JSONPath=`.spec.fallback`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterReschedulePolicy struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// +required
	Spec ClusterReschedulePolicySpec `json:"spec,omitempty,omitzero"`
}

// ClusterReschedulePolicyList is a list of ClusterReschedulePolicies.
//
// +kubebuilder:object:root=true
type ClusterReschedulePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []ClusterReschedulePolicy `json:"items"`
}
