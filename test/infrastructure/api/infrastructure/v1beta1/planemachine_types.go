// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Backend says what a PlaneMachine is made of.
// +kubebuilder:validation:Enum=Simulated;Real
type Backend string

// The backends.
const (
	// Simulated Machines are Node objects, kept alive by the provider.
	Simulated Backend = "Simulated"
	// Real Machines are a kubelet and a containerd on this machine.
	Real Backend = "Real"
)

// CgroupVersion is a version of control groups.
// +kubebuilder:validation:Enum=V1;V2
type CgroupVersion string

// The versions of control groups.
const (
	CgroupV1 CgroupVersion = "V1"
	CgroupV2 CgroupVersion = "V2"
)

// NodeRemoval is the component that deletes the Node after its Machine.
// +kubebuilder:validation:Enum=ClusterAPI;Provider
type NodeRemoval string

// The values of NodeRemoval.
const (
	// RemovedByClusterAPI leaves the Node to core, as most providers do.
	RemovedByClusterAPI NodeRemoval = "ClusterAPI"
	// RemovedByProvider deletes the Node with its Machine, as cloud controllers do.
	RemovedByProvider NodeRemoval = "Provider"
)

// Fault is what goes wrong at a step.
// +kubebuilder:validation:Enum=Fail;Hang
type Fault string

// The faults. Clearing one lets the Machine go on.
const (
	// Fail reports an error and goes no further.
	Fail Fault = "Fail"
	// Hang says nothing and goes no further.
	Hang Fault = "Hang"
)

// PlaneMachine is a machine that becomes a Node of a PlaneCluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=planemachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
// +kubebuilder:printcolumn:name=ProviderID,type=string,JSONPath=.spec.providerID
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=.status.nodeName
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].reason
type PlaneMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlaneMachineSpec   `json:"spec,omitempty"`
	Status PlaneMachineStatus `json:"status,omitempty"`
}

// PlaneMachineList is a list of PlaneMachines.
//
// +kubebuilder:object:root=true
type PlaneMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneMachine `json:"items"`
}

// PlaneMachineSpec describes the machine.
type PlaneMachineSpec struct {
	// ProviderID is set by the provider: plane://<namespace>/<name>.
	// +optional
	ProviderID string `json:"providerID,omitempty"`

	// Backend is Simulated unless it says otherwise.
	// +optional
	Backend Backend `json:"backend,omitempty"`

	// Cgroups is the version that a real node sees; absent means the version of this machine.
	// +optional
	Cgroups CgroupVersion `json:"cgroups,omitempty"`

	// NodeName is the Node's name; absent means the Machine's.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// MachineID becomes status.nodeInfo.machineID of a simulated Node; absent means
	// one derived from namespace and name. Real nodes have the machine ID of this machine.
	// +optional
	MachineID string `json:"machineID,omitempty"`

	// Address is the IP address of a simulated Node; absent means one derived from its
	// name. Real nodes have the address of this machine.
	// +optional
	Address string `json:"address,omitempty"`

	// NodeRemoval is ClusterAPI unless it says otherwise.
	// +optional
	NodeRemoval NodeRemoval `json:"nodeRemoval,omitempty"`

	// Faults are what goes wrong. They may be changed at any time.
	// +optional
	Faults Faults `json:"faults,omitempty"`
}

// Faults are what goes wrong with a Machine.
type Faults struct {
	// ProvisionSeconds delays provisioning, counted from creation.
	// +optional
	ProvisionSeconds int32 `json:"provisionSeconds,omitempty"`

	// Provision stops provisioning.
	// +optional
	Provision Fault `json:"provision,omitempty"`

	// DeletionSeconds delays the end, counted from deletion.
	// +optional
	DeletionSeconds int32 `json:"deletionSeconds,omitempty"`

	// Deletion keeps the Machine from going.
	// +optional
	Deletion Fault `json:"deletion,omitempty"`

	// Heartbeat stops a simulated Node's lease and its pods: the machine is off the
	// network.
	// +optional
	Heartbeat Fault `json:"heartbeat,omitempty"`
}

// PlaneMachineStatus is what Cluster API reads, and the Node's name.
type PlaneMachineStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty"`

	// NodeName is the name of the Node, once there is one.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// +optional
	Addresses []MachineAddress `json:"addresses,omitempty"`

	// Conditions are the usual ones: Ready says why the object is where it is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineAddress is an address of a machine.
type MachineAddress struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}
