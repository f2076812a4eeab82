// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// Phase is the progress of the deletion of a Machine.
type Phase string

const (
	// BeforeDrain means that the Node is neither cordoned nor drained yet.
	BeforeDrain Phase = "BeforeDrain"
	// BeforeTermination means that the drain is over, and the machine itself goes next.
	BeforeTermination Phase = "BeforeTermination"
)

// Trigger is why a Machine is being deleted.
type Trigger string

const (
	// TriggerSchedule means that its window closed, or that its ScheduledMachine is being deleted.
	TriggerSchedule Trigger = "Schedule"
	// TriggerKillSwitch means that a person turned the kill switch on. The deletion does not wait for extensions.
	TriggerKillSwitch Trigger = "KillSwitch"
	// TriggerEmergencyReclaim means that the owner requested the machine. The deletion does not wait for extensions.
	TriggerEmergencyReclaim Trigger = "EmergencyReclaim"
	// TriggerExternal means that another client deleted the Machine: a person, a MachineHealthCheck, a MachineSet.
	TriggerExternal Trigger = "External"
)

// BeforeMachineDeleteRequest is the request of the BeforeMachineDelete hook.
//
// +kubebuilder:object:root=true
type BeforeMachineDeleteRequest struct {
	metav1.TypeMeta `json:",inline"`

	// settings of the MachineDeletionHook.
	runtimehooksv1.CommonRequest `json:",inline"`

	// machine is being deleted. Its managed fields are left out.
	// +required
	Machine clusterv1.Machine `json:"machine,omitempty,omitzero"`

	// scheduledMachine is the name of the ScheduledMachine in the Machine's namespace, empty for a Machine without
	// one.
	// +optional
	ScheduledMachine string `json:"scheduledMachine,omitempty"`

	// phase is the progress of the deletion.
	// +required
	Phase Phase `json:"phase,omitempty"`

	// trigger is why the Machine is being deleted. With KillSwitch and
	// EmergencyReclaim there is one call, and its answer changes nothing.
	// +required
	Trigger Trigger `json:"trigger,omitempty"`
}

var _ runtimehooksv1.RetryResponseObject = &BeforeMachineDeleteResponse{}

// BeforeMachineDeleteResponse is the answer to a BeforeMachineDeleteRequest.
//
// +kubebuilder:object:root=true
type BeforeMachineDeleteResponse struct {
	metav1.TypeMeta `json:",inline"`

	// status, message, and retryAfterSeconds: above zero, the deletion is held and the
	// extension called again after that, or after a minute if it is more. The message
	// should not change from call to call while nothing changes: people read it in a
	// condition, which is written each time.
	runtimehooksv1.CommonRetryResponse `json:",inline"`

	// skipDrain has Cluster API skip the drain. It counts in phase BeforeDrain, in the
	// answer with which the extension holds the deletion no longer.
	// +optional
	SkipDrain bool `json:"skipDrain,omitempty"`

	// skipVolumeDetachWait has Cluster API not wait until volumes are detached, as
	// skipDrain.
	// +optional
	SkipVolumeDetachWait bool `json:"skipVolumeDetachWait,omitempty"`
}

// BeforeMachineDelete is the hook that is called before a Machine leaves.
func BeforeMachineDelete(*BeforeMachineDeleteRequest, *BeforeMachineDeleteResponse) {}
