// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlaneConfig is bootstrap data for a PlaneMachine. There is nothing in it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=planeconfigs,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1beta1","cluster.x-k8s.io/provider=infrastructure-plane"}
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].reason
type PlaneConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlaneConfigSpec   `json:"spec,omitempty"`
	Status PlaneConfigStatus `json:"status,omitempty"`
}

// PlaneConfigList is a list of PlaneConfigs.
//
// +kubebuilder:object:root=true
type PlaneConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlaneConfig `json:"items"`
}

// PlaneConfigSpec says how the data comes about.
type PlaneConfigSpec struct {
	// DelaySeconds delays the data, counted from creation.
	// +optional
	DelaySeconds int32 `json:"delaySeconds,omitempty"`
}

// PlaneConfigStatus is what Cluster API reads.
type PlaneConfigStatus struct {
	// +optional
	Initialization Initialization `json:"initialization,omitempty"`

	// DataSecretName is the Secret with the bootstrap data.
	// +optional
	DataSecretName string `json:"dataSecretName,omitempty"`

	// Conditions are the usual ones: Ready says why the object is where it is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Initialization is the contract's sign that the data exists.
type Initialization struct {
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}
