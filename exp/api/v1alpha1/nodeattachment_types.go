// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeAttachmentSpec records the memberships of a Node that 5-Spot drains and restores later. It is written before the
// drain, so that a crash loses nothing.
type NodeAttachmentSpec struct {
	// clusterName is the Cluster of the Node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// nodeName is the name of the Node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// nodeUID is the UID of the recorded Node, empty until the Node is cordoned and annotated.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// providerID is the provider ID of the Node.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// addresses are the addresses of the Node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`

	// triggerTime is when the Node began to leave its load balancers. It starts again when the Node leaves further ones.
	// +optional
	TriggerTime metav1.Time `json:"triggerTime,omitempty,omitzero"`

	// trigger is why the Node leaves its load balancers; empty if it does not.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Trigger string `json:"trigger,omitempty"`

	// loadBalancers are the names of the LoadBalancers to which trigger applies; empty means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	LoadBalancers []string `json:"loadBalancers,omitempty"`

	// daemonSets are the DaemonSets whose pod on the Node is being replaced.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	DaemonSets []ReplacedPod `json:"daemonSets,omitempty"`

	// controlPlane is true for a control plane Node.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`

	// memberships are the memberships that 5-Spot drained.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Memberships []Membership `json:"memberships,omitempty"`
}

// ReplacedPod is the pod of a DaemonSet on the Node that another pod replaces.
type ReplacedPod struct {
	// namespace is the namespace of the DaemonSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the DaemonSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// podUID is the UID of the pod if 5-Spot deletes it; empty if another controller does.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`

	// startTime is when that began.
	// +optional
	StartTime metav1.Time `json:"startTime,omitempty,omitzero"`
}

// Membership is the membership of a Node in a pool of a load balancer.
type Membership struct {
	// loadBalancer is the name of the LoadBalancer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	LoadBalancer string `json:"loadBalancer,omitempty"`

	// pool is the backend, the ARN of the target group, or the name of the classic load
	// balancer.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Pool string `json:"pool,omitempty"`

	// member is the name of the server, or the ID of the target or instance.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Member string `json:"member,omitempty"`

	// port is the port of the target; zero is the port of the pool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// address is the IP address of the server, where its name alone does not identify it. A server
	// with this name and another address is not this member.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address,omitempty"`

	// persistent is true if the membership exists also while the Node does not.
	// +optional
	Persistent bool `json:"persistent,omitempty"`

	// drainTime is when 5-Spot drained it.
	// +optional
	DrainTime metav1.Time `json:"drainTime,omitempty,omitzero"`
}

// Same reports whether two memberships identify the same member. It ignores drainTime and persistent.
func (m *Membership) Same(other Membership) bool {
	other.DrainTime, other.Persistent = m.DrainTime, m.Persistent
	return *m == other
}

// MembershipStatus is the state of a membership, as the load balancer last reported it.
type MembershipStatus struct {
	Membership `json:",inline"`

	// state is Attached, Draining, Drained, Absent, Disabled (by another client), or Unknown.
	// +required
	// +kubebuilder:validation:Enum=Attached;Draining;Drained;Absent;Disabled;Unknown
	State string `json:"state,omitempty"`

	// connections is the number of its connections, if the load balancer counts them.
	// +optional
	Connections *int64 `json:"connections,omitempty"`

	// message is why it is not Drained.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NodeAttachmentStatus is the state of a Node that leaves or comes back, as its load balancers report it.
type NodeAttachmentStatus struct {
	// conditions report whether the Node is out.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// loadBalancers is the progress of the Node with each LoadBalancer.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	LoadBalancers []BalancerProgress `json:"loadBalancers,omitempty"`
}

// AttachmentPhase is the progress of a Node with a LoadBalancer.
//
// +kubebuilder:validation:Enum=Pending;Held;Draining;Detached;Unknown;Attaching
type AttachmentPhase string

const (
	// PhasePending means that the load balancer was not called for the Node yet.
	PhasePending AttachmentPhase = "Pending"
	// PhaseHeld means that the Node stays because too few other members are in a pool.
	PhaseHeld AttachmentPhase = "Held"
	// PhaseDraining means that the Node has connections, or may have.
	PhaseDraining AttachmentPhase = "Draining"
	// PhaseDetached means that the Node is out.
	PhaseDetached AttachmentPhase = "Detached"
	// PhaseUnknown means that the load balancer does not report whether the Node is out.
	PhaseUnknown AttachmentPhase = "Unknown"
	// PhaseAttaching means that the memberships of the Node are being restored.
	PhaseAttaching AttachmentPhase = "Attaching"
)

// BalancerProgress is the progress of a Node with a LoadBalancer.
type BalancerProgress struct {
	// name is the name of the LoadBalancer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// generation is the generation of the LoadBalancer at the last call.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// discoveryHash is a hash of the trigger and the addresses of the latest discovery. 5-Spot repeats the discovery when
	// they change.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DiscoveryHash string `json:"discoveryHash,omitempty"`

	// phase is Pending, Held, Draining, Detached, Unknown or Attaching.
	// +required
	Phase AttachmentPhase `json:"phase,omitempty"`

	// message is what the Node waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// members are the memberships of the Node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Members []MembershipStatus `json:"members,omitempty"`
}

// NodeAttachment records a Node that 5-Spot detaches from its load balancers.
// A Node with all its memberships has none.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeattachments,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Trigger",type=string,JSONPath=`.spec.trigger`
// +kubebuilder:printcolumn:name="Detached",type=string,JSONPath=`.status.conditions[?(@.type=='NodeBeingDetached')].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeAttachment struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// +required
	Spec NodeAttachmentSpec `json:"spec,omitempty,omitzero"`

	// +optional
	Status NodeAttachmentStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions.
func (a *NodeAttachment) GetConditions() []metav1.Condition { return a.Status.Conditions }

// SetConditions sets the conditions.
func (a *NodeAttachment) SetConditions(c []metav1.Condition) { a.Status.Conditions = c }

// NodeAttachmentList is a list of NodeAttachments.
//
// +kubebuilder:object:root=true
type NodeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []NodeAttachment `json:"items"`
}
