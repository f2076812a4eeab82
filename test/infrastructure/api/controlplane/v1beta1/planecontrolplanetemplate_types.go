// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneControlPlaneTemplate is what a Cluster of a topology gets its
// PlaneControlPlane from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=planecontrolplanetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
type PlaneControlPlaneTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PlaneControlPlaneTemplateSpec `json:"spec,omitempty"`
}

// PlaneControlPlaneTemplateList is a list of PlaneControlPlaneTemplates.
//
// +kubebuilder:object:root=true
type PlaneControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneControlPlaneTemplate `json:"items"`
}

// PlaneControlPlaneTemplateSpec holds the template.
type PlaneControlPlaneTemplateSpec struct {
	Template PlaneControlPlaneTemplateResource `json:"template"`
}

// PlaneControlPlaneTemplateResource is what a PlaneControlPlane begins as.
type PlaneControlPlaneTemplateResource struct {
	// +optional
	Spec PlaneControlPlaneSpec `json:"spec,omitempty"`
}
