// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneConfigTemplate is what a MachineDeployment makes PlaneConfigs from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=planeconfigtemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
type PlaneConfigTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PlaneConfigTemplateSpec `json:"spec,omitempty"`
}

// PlaneConfigTemplateList is a list of PlaneConfigTemplates.
//
// +kubebuilder:object:root=true
type PlaneConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneConfigTemplate `json:"items"`
}

// PlaneConfigTemplateSpec holds the template.
type PlaneConfigTemplateSpec struct {
	Template PlaneConfigTemplateResource `json:"template"`
}

// PlaneConfigTemplateResource is what a PlaneConfig begins as.
type PlaneConfigTemplateResource struct {
	// Metadata is copied to the PlaneConfig.
	// +optional
	Metadata Metadata `json:"metadata,omitempty"`

	Spec PlaneConfigSpec `json:"spec"`
}

// Metadata is the part of an object's metadata that a template may set.
type Metadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
