// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// Schedule says when the machine belongs to the cluster. The machine is wanted
// at an instant when the local weekday is in DaysOfWeek and the local hour is in
// HoursOfDay; either list empty means never.
type Schedule struct {
	// daysOfWeek are the days of the window. An item is a comma list of days
	// (mon, tue, wed, thu, fri, sat, sun) and ranges; ranges include both ends and
	// may wrap: fri-mon is Friday to Monday.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={}
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	DaysOfWeek []string `json:"daysOfWeek,omitempty"`

	// hoursOfDay are the hours of the window, 0 to 23. An item is a comma list of
	// hours and ranges; a range includes its last hour and may wrap: 9-17 is
	// 09:00:00 to 17:59:59, 22-6 is 22:00:00 to 06:59:59.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={}
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	HoursOfDay []string `json:"hoursOfDay,omitempty"`

	// timezone is the zone that days and hours are read in: a name of the IANA
	// time zone database, such as Europe/Zurich.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local'",message="must be a name of the IANA time zone database, such as UTC or Europe/Zurich"
	Timezone string `json:"timezone,omitempty"`

	// enabled turns the schedule on. False leaves everything as it is: nothing is
	// started and an existing machine stays. An emergency reclaim sets it to false.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// EmbeddedObject is a bootstrap or infrastructure object that is made when the
// window opens.
type EmbeddedObject struct {
	// apiVersion of the object: group and version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// spec of the object, copied as it is.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec,omitempty,omitzero"`
}

// TemplateReference names a template of a provider, in the namespace of the
// ScheduledMachine. An object is cloned from it when the window opens, as Cluster
// API does for its MachineSets.
type TemplateReference struct {
	// apiVersion of the template: group and version.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the template. Without the word Template at its end it is the kind of
	// the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of an object: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// MachineTemplate is metadata for the Machine.
type MachineTemplate struct {
	// labels are added to the Machine.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !['kubernetes.io/', 'k8s.io/', 'cluster.x-k8s.io/', '5spot.finos.org/', 'node-role.kubernetes.io/', 'node-restriction.kubernetes.io/'].exists(p, k.startsWith(p)))",message="keys must not begin with kubernetes.io/, k8s.io/, cluster.x-k8s.io/, 5spot.finos.org/, node-role.kubernetes.io/ or node-restriction.kubernetes.io/: these are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('.node-restriction.kubernetes.io/') && !k.contains('.delete.hook.machine.cluster.x-k8s.io'))",message="keys must not have .node-restriction.kubernetes.io/ or .delete.hook.machine.cluster.x-k8s.io in them: these are reserved"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to the Machine.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !['kubernetes.io/', 'k8s.io/', 'cluster.x-k8s.io/', '5spot.finos.org/', 'node-role.kubernetes.io/', 'node-restriction.kubernetes.io/'].exists(p, k.startsWith(p)))",message="keys must not begin with kubernetes.io/, k8s.io/, cluster.x-k8s.io/, 5spot.finos.org/, node-role.kubernetes.io/ or node-restriction.kubernetes.io/: these are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('.node-restriction.kubernetes.io/') && !k.contains('.delete.hook.machine.cluster.x-k8s.io'))",message="keys must not have .node-restriction.kubernetes.io/ or .delete.hook.machine.cluster.x-k8s.io in them: these are reserved"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeTaint is a taint of the Node. Its key and effect identify it; the value may change.
type NodeTaint struct {
	// key of the taint, such as example.org/borrowed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-.A-Za-z0-9]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 253",message="must be a name of letters, digits, '-' and '.', at most 63 characters, that begins and ends with a letter or digit, optionally after a DNS domain and '/', such as example.org/borrowed"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('5spot.finos.org/') && !self.startsWith('kubernetes.io/') && !self.startsWith('node.kubernetes.io/') && !self.startsWith('node-role.kubernetes.io/') && !self.startsWith('node.cluster.x-k8s.io/')",message="must not begin with 5spot.finos.org/, kubernetes.io/, node.kubernetes.io/, node-role.kubernetes.io/ or node.cluster.x-k8s.io/: these are reserved"
	Key string `json:"key"`

	// value of the taint; absent and empty are the same.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$')",message="must consist of letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
	Value string `json:"value,omitempty"`

	// effect on pods that do not tolerate the taint. NoExecute also evicts running pods.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// AppliedNodeTaint is a taint that 5-Spot applied, also if it is no longer valid in a spec.
type AppliedNodeTaint struct {
	// key of the taint.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// value of the taint, absent if it is empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// effect on pods that do not tolerate the taint.
	// +required
	Effect corev1.TaintEffect `json:"effect"`
}

// ScheduledMachineSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="has(self.bootstrapSpec) || has(self.bootstrapTemplateRef)",reason=FieldValueRequired,fieldPath=".bootstrapSpec",message="describe the bootstrap config, or name its template in bootstrapTemplateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.bootstrapSpec) || !has(self.bootstrapTemplateRef)",reason=FieldValueForbidden,fieldPath=".bootstrapTemplateRef",message="must not be set together with bootstrapSpec: keep one of them"
// +kubebuilder:validation:XValidation:rule="has(self.infrastructureSpec) || has(self.infrastructureTemplateRef)",reason=FieldValueRequired,fieldPath=".infrastructureSpec",message="describe the infrastructure machine, or name its template in infrastructureTemplateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.infrastructureSpec) || !has(self.infrastructureTemplateRef)",reason=FieldValueForbidden,fieldPath=".infrastructureTemplateRef",message="must not be set together with infrastructureSpec: keep one of them"
type ScheduledMachineSpec struct {
	// schedule says when the machine belongs to the cluster.
	// +required
	Schedule Schedule `json:"schedule"`

	// clusterName is the Cluster, in the same namespace, that the machine joins.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')",message="must consist of letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: create another ScheduledMachine for another Cluster"
	ClusterName string `json:"clusterName"`

	// bootstrapSpec is the bootstrap config, in group bootstrap.cluster.x-k8s.io or
	// k0smotron.io, of a kind whose name ends in Config. An edit while the machine is
	// active applies at the next window.
	// Exactly one of it and bootstrapTemplateRef is set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.apiVersion.matches('^(bootstrap[.]cluster[.]x-k8s[.]io|k0smotron[.]io)/[^/]+$')",message="apiVersion must be of group bootstrap.cluster.x-k8s.io or k0smotron.io, such as bootstrap.cluster.x-k8s.io/v1beta2"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Z][-A-Za-z0-9]*Config$')",fieldPath=".kind",message="must be the kind of the bootstrap config, such as KubeadmConfig: it begins with a capital and ends in Config",messageExpression="'must be the kind of the bootstrap config, such as KubeadmConfig, not ' + self.kind + ': it begins with a capital and ends in Config'"
	BootstrapSpec EmbeddedObject `json:"bootstrapSpec,omitempty,omitzero"`

	// bootstrapTemplateRef is the template that the bootstrap config is cloned from,
	// in place of bootstrapSpec. Another template while the machine is active applies
	// at the next window; a change inside the template is not noticed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.apiVersion.matches('^(bootstrap[.]cluster[.]x-k8s[.]io|k0smotron[.]io)/[^/]+$')",message="apiVersion must be of group bootstrap.cluster.x-k8s.io or k0smotron.io, such as bootstrap.cluster.x-k8s.io/v1beta2"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Z][-A-Za-z0-9]*ConfigTemplate$')",fieldPath=".kind",message="must be the kind of a template, such as KubeadmConfigTemplate: it begins with a capital and ends in ConfigTemplate",messageExpression="'must be the kind of a template, such as KubeadmConfigTemplate, not ' + self.kind + ': it begins with a capital and ends in ConfigTemplate'"
	BootstrapTemplateRef TemplateReference `json:"bootstrapTemplateRef,omitempty,omitzero"`

	// infrastructureSpec is the infrastructure machine, in group
	// infrastructure.cluster.x-k8s.io or k0smotron.io, of a kind whose name ends in
	// Machine. An edit while the machine is active applies at the next window. Exactly
	// one of it and infrastructureTemplateRef is set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.apiVersion.matches('^(infrastructure[.]cluster[.]x-k8s[.]io|k0smotron[.]io)/[^/]+$')",message="apiVersion must be of group infrastructure.cluster.x-k8s.io or k0smotron.io, such as infrastructure.cluster.x-k8s.io/v1beta2"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Z][-A-Za-z0-9]*Machine$')",fieldPath=".kind",message="must be the kind of the infrastructure machine, such as DevMachine: it begins with a capital and ends in Machine",messageExpression="'must be the kind of the infrastructure machine, such as DevMachine, not ' + self.kind + ': it begins with a capital and ends in Machine'"
	InfrastructureSpec EmbeddedObject `json:"infrastructureSpec,omitempty,omitzero"`

	// infrastructureTemplateRef is the template that the infrastructure machine is
	// cloned from, in place of infrastructureSpec. Another template while the machine
	// is active applies at the next window; a change inside the template is not
	// noticed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.apiVersion.matches('^(infrastructure[.]cluster[.]x-k8s[.]io|k0smotron[.]io)/[^/]+$')",message="apiVersion must be of group infrastructure.cluster.x-k8s.io or k0smotron.io, such as infrastructure.cluster.x-k8s.io/v1beta2"
	// +kubebuilder:validation:XValidation:rule="self.kind.matches('^[A-Z][-A-Za-z0-9]*MachineTemplate$')",fieldPath=".kind",message="must be the kind of a template, such as DevMachineTemplate: it begins with a capital and ends in MachineTemplate",messageExpression="'must be the kind of a template, such as DevMachineTemplate, not ' + self.kind + ': it begins with a capital and ends in MachineTemplate'"
	InfrastructureTemplateRef TemplateReference `json:"infrastructureTemplateRef,omitempty,omitzero"`

	// machineTemplate is metadata for the Machine.
	// +optional
	MachineTemplate MachineTemplate `json:"machineTemplate,omitempty,omitzero"`

	// priority ranks machines: higher is more important. When departures are limited,
	// the lowest leaves first.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Priority *int32 `json:"priority,omitempty"`

	// gracefulShutdownTimeout is the whole budget of a graceful departure, drain
	// included: a whole number followed by s, m or h, at most 24h. After that, the
	// remaining drain and volume wait are skipped.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:MaxLength=32
	GracefulShutdownTimeout string `json:"gracefulShutdownTimeout,omitempty"`

	// nodeDrainTimeout is the budget of the drain: a whole number followed by s, m
	// or h, at most 24h. 0s means no drain.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:MaxLength=32
	NodeDrainTimeout string `json:"nodeDrainTimeout,omitempty"`

	// killSwitch removes the machine now, without drain or grace, and keeps it away
	// until it is false again.
	// +optional
	// +kubebuilder:default=false
	KillSwitch bool `json:"killSwitch,omitempty"`

	// killIfCommands are the patterns of the reclaim agent: when a process on the
	// machine has one as its exact name or in its command line, the owner wants the
	// machine back. Absent and empty are the same: no agent.
	// +optional
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	KillIfCommands []string `json:"killIfCommands,omitempty"`

	// resumeAfterReclaim says what lends the machine again after its owner took it back.
	// +optional
	// +kubebuilder:default=OnEnable
	ResumeAfterReclaim ResumePolicy `json:"resumeAfterReclaim,omitempty"`

	// reclaimHold is what the agent does about the pods of the machine as soon as a
	// process matches, before the machine is removed. Freeze stops their CPU time, and
	// kills the pods that it sees hold a GPU: few, as 5-Spot installs the agent. FreezeOnly
	// kills none. Kill also frees their memory and devices. It needs killIfCommands, cgroup v2
	// and Linux 5.14.
	// +optional
	// +kubebuilder:validation:Enum=None;Freeze;FreezeOnly;Kill
	// +kubebuilder:default=None
	ReclaimHold reclaim.Hold `json:"reclaimHold,omitempty"`

	// nodeTaints are taints of the Node, applied once it is ready. A taint that is
	// removed from the list is removed from the Node; other taints are never changed.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=32
	NodeTaints []NodeTaint `json:"nodeTaints,omitempty"`
}

// ResumePolicy says what lends a machine again after its owner took it back.
// +kubebuilder:validation:Enum=OnEnable;OnResume
type ResumePolicy string

const (
	// ResumeOnEnable lends the machine again when schedule.enabled is set to true, also by a tool that applies a
	// desired state.
	ResumeOnEnable ResumePolicy = "OnEnable"
	// ResumeOnResume does not lend the machine, also while schedule.enabled is true, until the record of the reclaim is
	// removed, for example by "kubectl 5spot resume".
	ResumeOnResume ResumePolicy = "OnResume"
)

// Phase is where a ScheduledMachine stands.
// +kubebuilder:validation:Enum=Pending;Active;ShuttingDown;Inactive;Disabled;Terminated;EmergencyRemove;Error
type Phase string

const (
	// PhasePending means that the schedule is being evaluated: nothing is created yet,
	// or existing objects are being adopted.
	PhasePending Phase = "Pending"
	// PhaseActive means that bootstrap, infrastructure and Machine exist. Ready says
	// whether the Node is up.
	PhaseActive Phase = "Active"
	// PhaseShuttingDown means that the Machine is being deleted through Cluster API.
	PhaseShuttingDown Phase = "ShuttingDown"
	// PhaseInactive means that nothing exists.
	PhaseInactive Phase = "Inactive"
	// PhaseDisabled means that the controller starts nothing; an existing Machine
	// stays as it is.
	PhaseDisabled Phase = "Disabled"
	// PhaseTerminated means that the kill switch is on.
	PhaseTerminated Phase = "Terminated"
	// PhaseEmergencyRemove means that the owner wants the machine back, and it is being
	// removed without drain.
	PhaseEmergencyRemove Phase = "EmergencyRemove"
	// PhaseError means that a step failed and is retried with back-off.
	PhaseError Phase = "Error"
)

// Phases are all phases, in the order of a machine's life.
var Phases = []Phase{
	PhasePending, PhaseActive, PhaseShuttingDown, PhaseInactive,
	PhaseDisabled, PhaseTerminated, PhaseEmergencyRemove, PhaseError,
}

// ChildReference names an object in the ScheduledMachine's namespace.
type ChildReference struct {
	// apiVersion of the object.
	// +required
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// kind of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace of the object: the ScheduledMachine's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// uid of the object: another one of its name is not the one that was reported.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// deletionTimestamp is when the deletion of the Machine was requested. It is absent for the other objects.
	// +optional
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
}

// NodeReference names a Node of the workload cluster.
type NodeReference struct {
	// name of the Node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// machineID is the machine ID that the Node first reported for this Machine: if the
	// Node reports another later, another host has taken the name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	MachineID string `json:"machineID,omitempty"`
}

// HoldReport is what the agent reported about its hold. The times are from the match of a program, or from when the agent
// saw the request of a person, by the clock of the machine.
type HoldReport struct {
	// frozenPods is the number of pods that were frozen.
	// +required
	FrozenPods int32 `json:"frozenPods"`
	// frozenAfterMilliseconds is the time until all of these pods were frozen.
	// +required
	FrozenAfterMilliseconds int64 `json:"frozenAfterMilliseconds"`
	// runningPods is the number of pods that were not frozen in time. The CPU is the owner's only if it is 0.
	// +optional
	RunningPods int32 `json:"runningPods,omitempty"`
	// killedPods is the number of pods that were killed and have no process any more.
	// +optional
	KilledPods int32 `json:"killedPods,omitempty"`
	// killedAfterMilliseconds is the time until the last process of a killed pod was gone: the memory was the owner's.
	// +optional
	KilledAfterMilliseconds int64 `json:"killedAfterMilliseconds,omitempty"`
}

// HostStatus has the names of the host.
type HostStatus struct {
	// source is where names come from: the kind of the infrastructure machine, or its template.
	// +optional
	// +kubebuilder:validation:MaxLength=640
	Source string `json:"source,omitempty"`
	// names are the names of the host in the spec or its template.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Names []HostName `json:"names,omitempty"`
	// claimTime is when the spec began to name it. Of two that name one host, the earlier
	// comes first.
	// +optional
	ClaimTime *metav1.Time `json:"claimTime,omitempty"`
	// machineNames are the names of the host of the existing machine. They differ from names while an edit waits for
	// the next window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	MachineNames []HostName `json:"machineNames,omitempty"`
}

// DepartureStatus is the departure of the machine, from the moment at which it is deferred or starts.
type DepartureStatus struct {
	// reason is why the machine leaves.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason DepartureReason `json:"reason"`
	// lane is scheduled, unscheduled or exempt. A departure in the exempt lane waits for no other.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Lane DepartureLane `json:"lane"`
	// requestedTime is since when the departure waits, or has waited. DepartureGated says why. Absent in the exempt lane.
	// +optional
	RequestedTime *metav1.Time `json:"requestedTime,omitempty"`
	// admittedTime is when the departure was admitted; the Machine is deleted then. Absent while it waits.
	// +optional
	AdmittedTime *metav1.Time `json:"admittedTime,omitempty"`
	// deadlineTime is when gracefulShutdownTimeout ends. MachineReady says what the machine waits for. Absent while the
	// departure waits, and in the exempt lane.
	// +optional
	DeadlineTime *metav1.Time `json:"deadlineTime,omitempty"`
}

// ScheduledMachineStatus is what is. Everything in it is true in every phase: a
// reference is cleared when its object is gone.
type ScheduledMachineStatus struct {
	// conditions are Ready, Scheduled, MachineReady, ReferencesValid,
	// WorkloadClusterReachable, NodeTainted, OwnerProtected, HostClaimed and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is where the ScheduledMachine stands.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// message says in one sentence what is happening and why.
	// +optional
	// +kubebuilder:validation:MaxLength=10240
	Message string `json:"message,omitempty"`

	// inSchedule is the schedule's answer now. It follows the clock even while the
	// phase stands still, and is false while the schedule is disabled.
	// +optional
	InSchedule bool `json:"inSchedule"`

	// machineRef is the Machine, absent when there is none.
	// +optional
	MachineRef *ChildReference `json:"machineRef,omitempty"`

	// bootstrapRef is the bootstrap config, absent when there is none.
	// +optional
	BootstrapRef *ChildReference `json:"bootstrapRef,omitempty"`

	// infrastructureRef is the infrastructure machine, absent when there is none.
	// +optional
	InfrastructureRef *ChildReference `json:"infrastructureRef,omitempty"`

	// nodeRef is the Node in the workload cluster, absent when there is none.
	// +optional
	NodeRef *NodeReference `json:"nodeRef,omitempty"`

	// providerID is the Machine's provider id, absent when there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// host is how the host is named, absent where nothing names it.
	// +optional
	Host *HostStatus `json:"host,omitempty"`

	// departure is how far the departure of the machine has come, absent while it stays.
	// +optional
	Departure *DepartureStatus `json:"departure,omitempty"`

	// appliedNodeTaints are the taints of the Node that 5-Spot applied, without taints of the spec that another
	// manager had added before.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	AppliedNodeTaints []AppliedNodeTaint `json:"appliedNodeTaints,omitempty"`

	// reclaimHold is what the agent reported about the pods of the machine when its owner last took it back. Absent means
	// that it held none, or has not reported it.
	// +optional
	ReclaimHold *HoldReport `json:"reclaimHold,omitempty"`

	// lastScheduledTime is when the Machine was last created.
	// +optional
	LastScheduledTime *metav1.Time `json:"lastScheduledTime,omitempty"`

	// nextActivation is the next instant at which the window opens. Absent means
	// never, or that the schedule is disabled.
	// +optional
	NextActivation *metav1.Time `json:"nextActivation,omitempty"`

	// nextCleanup is the next instant at which the window closes, or the past one at which it closed while the departure
	// waits. Absent means never, or that the schedule is disabled.
	// +optional
	NextCleanup *metav1.Time `json:"nextCleanup,omitempty"`

	// nextCleanupAnnouncedTime is the time since which nextCleanup has been the same for the same spec. A window end that
	// was announced for 10 minutes is in the scheduled lane.
	// +optional
	NextCleanupAnnouncedTime *metav1.Time `json:"nextCleanupAnnouncedTime,omitempty"`

	// nextTransition is the earlier of nextActivation and nextCleanup with what
	// happens then, for people: "opens 2026-01-15T09:00:00Z". While nothing follows
	// from the schedule it says why: "none: being deleted".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	NextTransition string `json:"nextTransition,omitempty"`

	// days are the schedule's daysOfWeek on one line, for people: "mon-fri".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Days string `json:"days,omitempty"`

	// hours are the schedule's hoursOfDay on one line, for people: "9-17".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Hours string `json:"hours,omitempty"`

	// observedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ScheduledMachine is a machine that belongs to a Cluster on a schedule, and to
// its owner otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=scheduledmachines,scope=Namespaced,shortName=sm,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=addon-5spot","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move-hierarchy=","visualizer.cluster.x-k8s.io="}
// +kubebuilder:storageversion
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must be no longer than 63 characters: it becomes the value of a label on the Machine"
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="InSchedule",type=boolean,JSONPath=`.status.inSchedule`
// +kubebuilder:printcolumn:name="Enabled",type=boolean,JSONPath=`.spec.schedule.enabled`
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].status`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeRef.name`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextTransition`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Days",type=string,JSONPath=`.status.days`,priority=1
// +kubebuilder:printcolumn:name="Hours",type=string,JSONPath=`.status.hours`,priority=1
// +kubebuilder:printcolumn:name="TZ",type=string,JSONPath=`.spec.schedule.timezone`,priority=1
// +kubebuilder:printcolumn:name="KillSwitch",type=boolean,JSONPath=`.spec.killSwitch`,priority=1
type ScheduledMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the user wants.
	// +required
	Spec ScheduledMachineSpec `json:"spec,omitempty,omitzero"`

	// status is what is.
	// +optional
	Status ScheduledMachineStatus `json:"status,omitempty,omitzero"`
}

// ScheduledMachineList is a list of ScheduledMachines.
//
// +kubebuilder:object:root=true
type ScheduledMachineList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty,omitzero"`
	// items are the ScheduledMachines.
	Items []ScheduledMachine `json:"items"`
}

// PriorityOrDefault returns how important the machine is: the least important leaves first.
func (m *ScheduledMachine) PriorityOrDefault() int32 {
	if m.Spec.Priority == nil {
		return DefaultPriority
	}
	return *m.Spec.Priority
}

// ScheduleEnabled reports whether the schedule moves the machine: it is on, and the
// machine is not kept away from the cluster for its owner. Absent means on, as the default
// of the API does.
func (m *ScheduledMachine) ScheduleEnabled() bool {
	return (m.Spec.Schedule.Enabled == nil || *m.Spec.Schedule.Enabled) && !m.AwaitsResume()
}

// GetConditions returns the conditions, for Cluster API's condition helpers.
func (m *ScheduledMachine) GetConditions() []metav1.Condition {
	return m.Status.Conditions
}

// SetConditions replaces the conditions, for Cluster API's condition helpers.
func (m *ScheduledMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}
