// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReclaimedMachineSpec is the request that was served, as the Node or the person wrote it.
type ReclaimedMachineSpec struct {
	// clusterName is the Cluster that the ScheduledMachine named.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// node is the name of the Node that requested the machine, or whose machine a person requested.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// nodeUID is the UID of the Node. A later Node may have the same name.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	NodeUID string `json:"nodeUID,omitempty"`

	// reason is what the agent or the person wrote.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// requestedAt is what the agent or the person wrote.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	RequestedAt string `json:"requestedAt,omitempty"`

	// storedAt is when the workload cluster's API server stored a request without a time.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	StoredAt string `json:"storedAt,omitempty"`

	// propagatedFrom is the ScheduledMachine that received the request, if it was another of the same host.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	PropagatedFrom string `json:"propagatedFrom,omitempty"`

	// host has the names of the host, as the ScheduledMachine gave them. No machine is created on that host in this
	// namespace, whatever the name of the ScheduledMachine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Host []HostName `json:"host,omitempty"`
}

// HostName is one name of a host. Equal names are names of the same host.
type HostName struct {
	// kind is the kind of the name: address, providerID, nodeName or machineID. Copied images have equal machine IDs,
	// which prove nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// scope is where the name is unique: a kind of infrastructure machine, a namespace, or a Cluster. It is empty for a
	// machine ID.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Scope string `json:"scope,omitempty"`

	// value is the name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// ReclaimedMachine records that a ScheduledMachine of its name was deleted while its owner had the machine. A new
// ScheduledMachine of that name, or for the same host in the namespace, is not lent until a person lends it again.
// The controllers create a ReclaimedMachine, and delete it when they have copied the record to the new
// ScheduledMachine. If you delete it before that, the machine can be lent.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=reclaimedmachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=addon-5spot","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Requested",type=string,JSONPath=`.spec.requestedAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReclaimedMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the request that was served.
	// +required
	Spec ReclaimedMachineSpec `json:"spec,omitempty,omitzero"`
}

// ReclaimedMachineList is a list of ReclaimedMachines.
//
// +kubebuilder:object:root=true
type ReclaimedMachineList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	// items are the ReclaimedMachines.
	Items []ReclaimedMachine `json:"items"`
}

// Record returns the record as the annotation of a ScheduledMachine has it.
func (m *ReclaimedMachine) Record() ReclaimRecord {
	return ReclaimRecord{
		Node: m.Spec.Node, NodeUID: types.UID(m.Spec.NodeUID), Reason: m.Spec.Reason,
		RequestedAt: m.Spec.RequestedAt, StoredAt: m.Spec.StoredAt, PropagatedFrom: m.Spec.PropagatedFrom,
	}
}
