// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneMachineTemplate is what a MachineDeployment makes PlaneMachines from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=planemachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
type PlaneMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PlaneMachineTemplateSpec `json:"spec,omitempty"`
}

// PlaneMachineTemplateList is a list of PlaneMachineTemplates.
//
// +kubebuilder:object:root=true
type PlaneMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneMachineTemplate `json:"items"`
}

// PlaneMachineTemplateSpec holds the template.
type PlaneMachineTemplateSpec struct {
	Template PlaneMachineTemplateResource `json:"template"`
}

// PlaneMachineTemplateResource is what a PlaneMachine begins as.
type PlaneMachineTemplateResource struct {
	// Metadata is copied to the PlaneMachine.
	// +optional
	Metadata Metadata `json:"metadata,omitempty"`

	Spec PlaneMachineSpec `json:"spec"`
}

// Metadata is the part of an object's metadata that a template may set.
type Metadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}
