// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// FailurePolicy says what a call that fails does to a deletion.
//
// +kubebuilder:validation:Enum=Ignore;Fail
type FailurePolicy string

const (
	// FailurePolicyIgnore goes on as if the extension had nothing to do.
	FailurePolicyIgnore FailurePolicy = "Ignore"
	// FailurePolicyFail holds the deletion and calls again, until the deadline.
	FailurePolicyFail FailurePolicy = "Fail"
)

// MachineDeletionHookSpec says which extension is called, for which Machines, and for how
// long it may hold a deletion.
type MachineDeletionHookSpec struct {
	// clientConfig says where the extension is and how its certificate is checked. It
	// is called at this address with the path of the hook BeforeMachineDelete of
	// hooks.5spot.finos.org/v1alpha1 and the handler before-machine-delete.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.service)",message="set either url or service"
	// +kubebuilder:validation:XValidation:rule="!has(self.url) || isURL(self.url) && url(self.url).getScheme() == 'https' && url(self.url).getHost() != '' && !self.url.matches('[@?#]')",message="url must be https, and have no user, query or fragment, such as https://drainer.example.org/api"
	// +kubebuilder:validation:XValidation:rule="!has(self.service) || !has(self.service.port) || self.service.port >= 1 && self.service.port <= 65535",message="service.port must be between 1 and 65535"
	ClientConfig runtimev1.ClientConfig `json:"clientConfig,omitempty,omitzero"`

	// namespaceSelector selects the namespaces of the Machines. Empty selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// failurePolicy says what a call that fails does to a deletion.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// timeoutSeconds bounds one call.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=30
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// deadlineSeconds is how long the extension may hold a deletion in each of its two
	// phases, whatever it answers. All extensions are called at once, and the deadline of
	// each counts from the beginning of the phase.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`

	// settings are passed to the extension with every call.
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
}

// MachineDeletionHook registers an extension that is called before a Machine leaves:
// every Machine of a ScheduledMachine, and every other that carries 5-Spot's
// deletion hook annotations.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machinedeletionhooks,scope=Cluster,categories=cluster-api
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.failurePolicy`
// +kubebuilder:printcolumn:name="Deadline",type=integer,JSONPath=`.spec.deadlineSeconds`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineDeletionHook struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// +required
	Spec MachineDeletionHookSpec `json:"spec,omitempty,omitzero"`
}

// MachineDeletionHookList is a list of MachineDeletionHooks.
//
// +kubebuilder:object:root=true
type MachineDeletionHookList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	Items           []MachineDeletionHook `json:"items"`
}
