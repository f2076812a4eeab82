// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneClusterTemplate is what a Cluster of a topology gets its PlaneCluster from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=planeclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
type PlaneClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PlaneClusterTemplateSpec `json:"spec,omitempty"`
}

// PlaneClusterTemplateList is a list of PlaneClusterTemplates.
//
// +kubebuilder:object:root=true
type PlaneClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneClusterTemplate `json:"items"`
}

// PlaneClusterTemplateSpec holds the template.
type PlaneClusterTemplateSpec struct {
	Template PlaneClusterTemplateResource `json:"template"`
}

// PlaneClusterTemplateResource is what a PlaneCluster begins as.
type PlaneClusterTemplateResource struct {
	Spec PlaneClusterSpec `json:"spec"`
}
