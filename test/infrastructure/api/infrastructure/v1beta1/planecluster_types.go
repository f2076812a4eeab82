// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneCluster is a workload cluster whose control plane runs already.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=planeclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
type PlaneCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlaneClusterSpec   `json:"spec,omitempty"`
	Status PlaneClusterStatus `json:"status,omitempty"`
}

// PlaneClusterList is a list of PlaneClusters.
//
// +kubebuilder:object:root=true
type PlaneClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneCluster `json:"items"`
}

// PlaneClusterSpec says where the control plane is, and what its Nodes are like.
type PlaneClusterSpec struct {
	// ControlPlaneEndpoint is where the API server listens.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty"`

	// NodeLeaseSeconds is the lease duration of simulated Nodes; they renew at a
	// quarter of it. Absent means 40, which is what a kubelet does.
	// +optional
	// +kubebuilder:validation:Minimum=4
	NodeLeaseSeconds int32 `json:"nodeLeaseSeconds,omitempty"`
}

// APIEndpoint is an address of an API server.
type APIEndpoint struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// PlaneClusterStatus is what Cluster API reads.
type PlaneClusterStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty"`

	// Conditions are the usual ones: Ready says why the object is where it is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Initialization is the contract's sign that the object exists.
type Initialization struct {
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}
