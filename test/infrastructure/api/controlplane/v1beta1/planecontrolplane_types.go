// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneControlPlane is a control plane that runs already and has no Machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=planecontrolplanes,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].reason
type PlaneControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlaneControlPlaneSpec   `json:"spec,omitempty"`
	Status PlaneControlPlaneStatus `json:"status,omitempty"`
}

// PlaneControlPlaneList is a list of PlaneControlPlanes.
//
// +kubebuilder:object:root=true
type PlaneControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneControlPlane `json:"items"`
}

// PlaneControlPlaneSpec describes the control plane.
type PlaneControlPlaneSpec struct {
	// Version of Kubernetes.
	// +optional
	Version string `json:"version,omitempty"`
}

// PlaneControlPlaneStatus is what Cluster API reads.
type PlaneControlPlaneStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty"`

	// ExternalManagedControlPlane is true: without it Cluster API neither drains
	// nor deletes Nodes of a cluster that has no control plane Machines.
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`

	// +optional
	Version string `json:"version,omitempty"`

	// Conditions are the usual ones: Ready says why the object is where it is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Initialization is the contract's sign that the API server answers.
type Initialization struct {
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}
