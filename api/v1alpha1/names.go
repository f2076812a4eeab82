// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// ScheduledMachineFinalizer holds a ScheduledMachine until its children are gone.
	ScheduledMachineFinalizer = "5spot.finos.org/scheduledmachine"

	// ScheduledMachineLabel is on every child and names its ScheduledMachine, so that name is
	// no longer than the value of a label.
	ScheduledMachineLabel = "5spot.finos.org/scheduled-machine"

	// SpecHashAnnotation is on the bootstrap config and infrastructure machine. It is the hash of
	// the bootstrapSpec or infrastructureSpec that they were made from.
	SpecHashAnnotation = "5spot.finos.org/spec-hash"

	// AppliedHashAnnotation is on the Machine. It is the hash of the desired state that was
	// applied last, so that a settled Machine is not applied again.
	AppliedHashAnnotation = "5spot.finos.org/applied-hash"

	// CreatedAnnotation is on the Machine. It is the time of its creation in RFC 3339:
	// clusterctl move creates the object anew, while the machine runs on.
	CreatedAnnotation = "5spot.finos.org/created"

	// DepartureAnnotation is on a Machine that is due to leave, or leaves. Its value is a Departure in JSON: why, and
	// whether and when it was admitted. It is set before the Machine is deleted, and clusterctl move carries it to an
	// object that is not being deleted.
	DepartureAnnotation = "5spot.finos.org/departure"

	// HoldDeparturesAnnotation on a Cluster holds each departure that has not started. The exempt lane goes on: an
	// owner's request, a kill switch, the deletion of the Cluster. Its value is the reason, and may be empty.
	HoldDeparturesAnnotation = "5spot.finos.org/hold-departures"

	// EmergencyReclaimAnnotation is on a ScheduledMachine while an emergency reclaim
	// is under way. Its value is a ReclaimRecord in JSON. It is an annotation because
	// clusterctl move does not carry status.
	EmergencyReclaimAnnotation = "5spot.finos.org/emergency-reclaim"

	// ReclaimedAnnotation is on a ScheduledMachine whose schedule an emergency reclaim
	// turned off, until it is turned on again. Its value is a ReclaimRecord in
	// JSON.
	ReclaimedAnnotation = "5spot.finos.org/reclaimed"

	// LastReclaimAnnotation is on a ScheduledMachine that was reclaimed, also after the schedule
	// is on again. Its value is the ReclaimRecord in JSON. 5-Spot does not serve that request twice.
	LastReclaimAnnotation = "5spot.finos.org/last-reclaim"

	// GiveBacksAnnotation is on a ScheduledMachine that was reclaimed. Its value is a list of
	// GiveBacks in JSON, the latest first. It survives resume and clusterctl move.
	GiveBacksAnnotation = "5spot.finos.org/give-backs"

	// ReclaimedMachineUIDAnnotation is on a ScheduledMachine that was created with the name of a deleted
	// one whose owner had the machine. Its value is the UID of the ReclaimedMachine that
	// recorded it.
	ReclaimedMachineUIDAnnotation = "5spot.finos.org/reclaimed-machine-uid"

	// HostReclaimedAnnotation is on a ScheduledMachine to which an owner's request for
	// another one of the same host was propagated. Its value identifies the request, so
	// that it is propagated once.
	HostReclaimedAnnotation = "5spot.finos.org/host-reclaimed"
	// LentAgainAnnotation is on a ScheduledMachine that a tool lent again soon after its
	// owner had taken the machine back, as long as the condition LentAgain is True. Its value
	// says in JSON which tool and when.
	LentAgainAnnotation = "5spot.finos.org/lent-again"

	// NodeAppliedTaintsAnnotation is on a Node. It has the taints that 5-Spot applied: a list of
	// key, value and effect in JSON. It is not in status, because it is
	// written together with the taints, and because clusterctl move does not carry
	// status.
	NodeAppliedTaintsAnnotation = "5spot.finos.org/applied-taints"

	// NodeStoppingPodsAnnotation is on a Node whose pods are being stopped in order. It has
	// these pods: a JSON object of their priorities by UID. It is written together with
	// the taint 5spot.finos.org/leaving.
	NodeStoppingPodsAnnotation = "5spot.finos.org/stopping-pods"

	// PodDeletionPriorityAnnotation is on a pod. It orders the pods that are stopped on a Node
	// that leaves: the highest number first. Its value is a whole number.
	PodDeletionPriorityAnnotation = "5spot.finos.org/deletion-priority"

	// NodeLeavingTaint is the key of the NoSchedule taint on a Node whose pods are being stopped in
	// order, so that they do not come back.
	NodeLeavingTaint = "5spot.finos.org/leaving"

	// ReclaimTimesAnnotation is on a ScheduledMachine that was reclaimed. It has the start of the
	// last three reclaims: three inside ten minutes are reported.
	ReclaimTimesAnnotation = "5spot.finos.org/reclaim-times"

	// PreDrainHookAnnotation is on every Machine of a ScheduledMachine. On another Machine it requests the
	// same departure. Cluster API does not cordon and drain the Node until 5-Spot removes it.
	PreDrainHookAnnotation = "pre-drain.delete.hook.machine.cluster.x-k8s.io/5spot"

	// PreTerminateHookAnnotation is on the same Machines. Cluster API does not delete the infrastructure until
	// 5-Spot removes it.
	PreTerminateHookAnnotation = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/5spot"

	// TopologyOwnedLabel is on every ScheduledMachine that was made from the variable of
	// a Cluster's topology. It has no value. Without it, the topology controller does not
	// change the ScheduledMachine.
	TopologyOwnedLabel = "topology.5spot.finos.org/owned"

	// FieldManager is the manager of the fields that the controllers write: what they
	// apply, and with updates the status, finalizers, annotations and
	// spec.schedule.enabled after an emergency reclaim.
	FieldManager = "5spot-controller"

	// TopologyFieldManager is the manager of the fields of ScheduledMachines that were
	// made from the variable of a Cluster's topology.
	TopologyFieldManager = "5spot-topology"

	// InstallerFieldManager is the manager of the fields of what is installed in
	// workload clusters.
	InstallerFieldManager = "5spot-agent-installer"
)

// Condition types of a ScheduledMachine.
const (
	// ReadyCondition is True when the machine is where its spec wants it to be, even
	// outside the cluster, and while a safety rail holds it in the cluster. To wait
	// until the machine is in the cluster, use MachineReady.
	ReadyCondition = "Ready"
	// ScheduledCondition is True when the schedule says run.
	ScheduledCondition = "Scheduled"
	// MachineReadyCondition mirrors the Machine's own conditions.
	MachineReadyCondition = "MachineReady"
	// ReferencesValidCondition is True when everything the spec names can be used.
	ReferencesValidCondition = "ReferencesValid"
	// WorkloadClusterReachableCondition is True when the workload cluster's Nodes are
	// being watched. Otherwise reclaim requests cannot be seen.
	WorkloadClusterReachableCondition = "WorkloadClusterReachable"
	// NodeTaintedCondition is True when the Node has the taints of the spec. It is
	// absent while there are none to apply and none to remove.
	NodeTaintedCondition = "NodeTainted"
	// OwnerProtectedCondition is True when the reclaim agent runs on the Node and watches
	// for the programs of the spec. It is absent if the spec lists none, or without a
	// Node. It is Unknown if 5-Spot rejects the Node that the Machine names.
	OwnerProtectedCondition = "OwnerProtected"
	// HostClaimedCondition is True while another ScheduledMachine names the same host: by
	// address, provider ID, name of the Node or machine ID. It is absent otherwise.
	HostClaimedCondition = "HostClaimed"
	// LentAgainCondition is True, as a warning, when a tool turned the schedule on within
	// ten minutes after the machine was given back to its owner. It is absent otherwise,
	// and goes away after 24 hours, when the schedule is off, and with
	// resumeAfterReclaim: OnResume.
	LentAgainCondition = "LentAgain"
	// DepartureGatedCondition is True while a safety rail holds the departure of the machine,
	// which stays as it is. It is absent otherwise.
	DepartureGatedCondition = "DepartureGated"
)

// DefaultPriority is spec.priority where it is not set.
const DefaultPriority = 50

// DefaultTimeout is spec.gracefulShutdownTimeout and spec.nodeDrainTimeout where they are not set.
const DefaultTimeout = "5m"

// Condition types of a Machine.
const (
	// MachineScheduledCondition is on a Machine once it is ready, and is the Scheduled
	// condition of its ScheduledMachine.
	MachineScheduledCondition = "5spot.finos.org/Scheduled"
	// ReadyForDeletionCondition is on a Machine that is being deleted and has departure steps or
	// extensions: True when none of them holds it.
	ReadyForDeletionCondition = "5spot.finos.org/ReadyForDeletion"
)

// Condition types of a Node, in the words of KEP-5683. A condition with another reason than
// these belongs to another controller, and 5-Spot does not change it.
const (
	// MaintenancePlannedCondition is True on a Node whose window is about to close.
	MaintenancePlannedCondition = "MaintenancePlanned"
	// DrainInProgressCondition is True on a Node from when its departure was admitted until it
	// is drained.
	DrainInProgressCondition = "DrainInProgress"
	// DrainedCondition is True on a Node that Cluster API has drained.
	DrainedCondition = "Drained"
)

// Reasons of the MaintenancePlanned, DrainInProgress and Drained conditions of a Node.
const (
	// NodeWindowClosingReason means that the window of the ScheduledMachine closes soon; the
	// message says when.
	NodeWindowClosingReason = "ScheduledMachineWindowClosing"
	// NodeDepartingReason means that the machine leaves; the message says why.
	NodeDepartingReason = "ScheduledMachineDeparting"
	// NodeDrainedReason means that the drain is done.
	NodeDrainedReason = "ScheduledMachineDrained"
)

// Condition types of a Cluster.
const (
	// ScheduledMachinesAppliedCondition is on a Cluster whose topology has the variable
	// scheduledMachines, or had it until its machines are gone: True when there are exactly
	// the ScheduledMachines that it lists. Each of them reports whether it runs.
	ScheduledMachinesAppliedCondition = "5spot.finos.org/ScheduledMachinesApplied"
	// ReclaimAgentInstalledCondition is on a Cluster in which 5-Spot installs the reclaim agent:
	// True when it is installed.
	ReclaimAgentInstalledCondition = "5spot.finos.org/ReclaimAgentInstalled"
)

// Reasons of the ReclaimAgentInstalled condition of a Cluster. It also has AgentNotInstalled.
const (
	// AgentInstalledReason means that the agent is installed in the workload cluster.
	AgentInstalledReason = "AgentInstalled"
)

// Reasons of the ScheduledMachinesApplied condition of a Cluster.
const (
	// VariableAppliedReason means that exactly the ScheduledMachines of the variable exist.
	VariableAppliedReason = "VariableApplied"
	// VariableInvalidReason means that the variable is invalid: nothing is changed.
	VariableInvalidReason = "VariableInvalid"
	// NameConflictReason means that a ScheduledMachine that the topology does not own has a name of
	// the variable. It is not changed.
	NameConflictReason = "NameConflict"
	// MachinesDeletingReason means that ScheduledMachines are leaving, because the
	// variable does not list them, or before they are created anew.
	MachinesDeletingReason = "MachinesDeleting"
	// MachinesPausedReason means that ScheduledMachines are paused and differ from the variable.
	MachinesPausedReason = "MachinesPaused"
	// ApplyFailedReason means that a ScheduledMachine could not be written; the message
	// says why.
	ApplyFailedReason = "ApplyFailed"
)

// Reasons of the ReadyForDeletion condition of a Machine.
const (
	// WaitingForResponseReason means that a departure step or an extension has not answered yet.
	WaitingForResponseReason = "WaitingForResponse"
	// WaitingForExtensionReason means that an extension holds the deletion. Steps may hold it, too.
	WaitingForExtensionReason = "WaitingForExtension"
	// WaitingForLoadBalancersReason means that load balancers still have the Node.
	WaitingForLoadBalancersReason = "WaitingForLoadBalancers"
	// WaitingForOperatorsReason means that operators have not moved their pods off the Node yet.
	WaitingForOperatorsReason = "WaitingForOperators"
	// StoppingPodsReason means that pods of the Node are being stopped in order.
	StoppingPodsReason = "StoppingPods"
	// StepsCompletedReason means that no step and no extension holds the deletion.
	StepsCompletedReason = "StepsCompleted"
	// StepsSkippedReason means that the deletion goes on although a step or an extension missed its
	// deadline, or failed and is ignored, or the Node does not answer; the message names it.
	StepsSkippedReason = "StepsSkipped"
)

// WaitAdvice returns the reasons of ReadyForDeletion for which a Machine waits, each with advice for a person. A
// departure step adds its own.
func WaitAdvice() map[string]string {
	return map[string]string{
		WaitingForExtensionReason:     `wait; see "See what holds a Machine" in docs/extensions.md`,
		WaitingForLoadBalancersReason: `wait; to shorten the wait, see "Shorten the wait" in docs/load-balancers.md`,
		WaitingForOperatorsReason:     `wait; see "When a machine of 5-Spot leaves" in docs/operators.md`,
		StoppingPodsReason:            `wait; see "Stop pods in order" in docs/load-balancers.md`,
	}
}

// Reasons of the Ready condition.
const (
	// MachineRunningReason means that the Machine runs in its window.
	MachineRunningReason = "MachineRunning"
	// InactiveReason means that nothing runs outside the window.
	InactiveReason = "Inactive"
	// DisabledReason means that the schedule is off.
	DisabledReason = "Disabled"
	// TerminatedReason means that the kill switch removed the machine.
	TerminatedReason = "Terminated"
	// MachineNotReadyReason means that the Machine exists and is not ready yet.
	MachineNotReadyReason = "MachineNotReady"
	// MachineCreatingReason means that children are being created.
	MachineCreatingReason = "MachineCreating"
	// ShuttingDownReason means that a graceful departure is under way.
	ShuttingDownReason = "ShuttingDown"
	// TerminatingReason means that the kill switch's removal is under way.
	TerminatingReason = "Terminating"
	// EmergencyReclaimReason means that an emergency removal is under way.
	EmergencyReclaimReason = "EmergencyReclaim"
	// ClusterDeletingReason means that the Cluster is being deleted.
	ClusterDeletingReason = "ClusterDeleting"
	// HostClaimedReason means that another ScheduledMachine comes first on the same host:
	// nothing is created.
	HostClaimedReason = "HostClaimed"
	// PendingReason means that the schedule is being evaluated.
	PendingReason = "Pending"
	// ReconcileFailedReason means that a step failed; the message says which.
	ReconcileFailedReason = "ReconcileFailed"
)

// Reasons of the Scheduled condition.
const (
	// ScheduleActiveReason means that the schedule says run.
	ScheduleActiveReason = "ScheduleActive"
	// ScheduleInactiveReason means that the schedule says do not run.
	ScheduleInactiveReason = "ScheduleInactive"
	// ScheduleDisabledReason means that the schedule is off.
	ScheduleDisabledReason = "ScheduleDisabled"
	// EmergencyReclaimDisabledScheduleReason means that an emergency reclaim turned
	// the schedule off.
	EmergencyReclaimDisabledScheduleReason = "EmergencyReclaimDisabledSchedule"
	// ScheduleUnreadableReason means that the days or hours cannot be read.
	ScheduleUnreadableReason = "ScheduleUnreadable"
	// TimezoneUnavailableReason means that the time zone is not known.
	TimezoneUnavailableReason = "TimezoneUnavailable"
)

// Reasons of the MachineReady, ReferencesValid and WorkloadClusterReachable
// conditions.
const (
	// MachineReadyReason means that the Machine is ready.
	MachineReadyReason = "MachineReady"
	// MachineAbsentReason means that there is no Machine.
	MachineAbsentReason = "MachineAbsent"
	// ReferencesValidReason means that everything the spec names can be used.
	ReferencesValidReason = "ReferencesValid"
	// ReferencesInvalidReason means that something the spec names cannot be used;
	// the message says which and why.
	ReferencesInvalidReason = "ReferencesInvalid"
	// ReferencesUnreadableReason means that it is unknown whether something exists that
	// the spec or the Machine names; the message says why. Nothing is created or
	// removed because of it.
	ReferencesUnreadableReason = "ReferencesUnreadable"
	// ConnectedReason means that the workload cluster is connected.
	ConnectedReason = "Connected"
	// NotConnectedReason means that the workload cluster is not connected.
	NotConnectedReason = "NotConnected"
	// WatchFilterMismatchReason means that the Cluster lacks the label that this manager's
	// watch filter requires.
	WatchFilterMismatchReason = "WatchFilterMismatch"
)

// Reasons of the NodeTainted condition.
const (
	// TaintsAppliedReason means that the Node has every taint of the spec.
	TaintsAppliedReason = "Applied"
	// NoNodeYetReason means that there is no Node.
	NoNodeYetReason = "NoNodeYet"
	// NodeNotReadyReason means that the Node is not ready; its taints are changed when
	// it is.
	NodeNotReadyReason = "NodeNotReady"
	// PatchFailedReason means that the workload cluster refused the taints, or did not
	// answer; the message says why.
	PatchFailedReason = "PatchFailed"
	// TaintOwnershipConflictReason means that another manager set a taint of the spec with
	// another value, or it is unknown which taints are 5-Spot's. Nothing is written.
	TaintOwnershipConflictReason = "TaintOwnershipConflict"
)

// Reasons of the HostClaimed condition.
const (
	// ClaimedByAnotherReason means that another ScheduledMachine comes first: it uses the
	// host, or has named it for longer. This one creates nothing; its running machine stays.
	ClaimedByAnotherReason = "ClaimedByAnother"
	// ClaimedFirstReason means that this one comes first, and goes on.
	ClaimedFirstReason = "ClaimedFirst"
	// HostReclaimedReason means that the owner requested the host through another
	// ScheduledMachine, and has not lent it again. This one creates nothing.
	HostReclaimedReason = "HostReclaimed"
	// DuplicateMachineIDReason means that another machine has the same machine ID: it is the
	// same host, or a copy of the same image. Both go on.
	DuplicateMachineIDReason = "DuplicateMachineID"
)

// Reasons of the OwnerProtected condition.
const (
	// WatchingReason means that the agent watches for the programs of the spec; the message
	// names its detector.
	WatchingReason = "Watching"
	// HoldUnavailableReason means the same, but that the agent cannot do what
	// spec.reclaimHold asks for; the message says why.
	HoldUnavailableReason = "HoldUnavailable"
	// AgentNotInstalledReason means that the agent could not be installed. If people install
	// it, they have not yet. The message says which, and what to do.
	AgentNotInstalledReason = "AgentNotInstalled"
	// AgentNotRunningReason means that no pod of the agent is Ready on the Node; the
	// message says why.
	AgentNotRunningReason = "AgentNotRunning"
	// CannotSeeProcessesReason means that the agent runs and cannot read the processes of
	// other users, so that it notices no program of the owner. The message says what to do.
	CannotSeeProcessesReason = "CannotSeeProcesses"
	// HostChangedReason means that the machine ID of the Node differs from the first one or from
	// the host's, or its provider ID from the Machine's: requests of the owner are refused. The
	// message names a refused one.
	HostChangedReason = "HostChanged"
	// ConfigurationPendingReason means that the agent has not read the current programs of the
	// spec yet.
	ConfigurationPendingReason = "ConfigurationPending"
	// ConfigurationUnconfirmedReason means that the agent runs and does not report its
	// configuration: it is older than the manager.
	ConfigurationUnconfirmedReason = "ConfigurationUnconfirmed"
	// AgentStatusUnknownReason means that the agent's pods, or the Node, cannot be read.
	AgentStatusUnknownReason = "AgentStatusUnknown"
	// NodeRejectedReason means that 5-Spot rejects the Node that the Machine names, and
	// installs no agent there. The message says why, and what to do.
	NodeRejectedReason = "NodeRejected"
)

// Reasons of the LentAgain condition.
const (
	// EnabledByToolReason means that a tool set schedule.enabled; the message names the field
	// manager, and the way out.
	EnabledByToolReason = "EnabledByTool"
)

// Reasons of the DepartureGated condition.
const (
	// BlastRadiusCapReason means that the departure cap of the Cluster is used up. The machine
	// leaves in its turn.
	BlastRadiusCapReason = "BlastRadiusCap"
	// WipeQuarantineReason means that nearly all machines of the Cluster or of all Clusters would leave at once,
	// which three checks confirm first.
	WipeQuarantineReason = "WipeQuarantine"
	// DeparturesHeldReason means that a person holds the departures of the Cluster.
	DeparturesHeldReason = "DeparturesHeld"
	// MachinePausedReason means that the Machine has the annotation cluster.x-k8s.io/paused. It leaves after that is removed.
	MachinePausedReason = "MachinePaused"
	// WarmUpReason means that the manager began to serve the Cluster a moment ago, for example as a new leader, and
	// does not know yet which machines left before.
	WarmUpReason = "WarmUp"
	// ClockSuspectReason means that the manager's clock differs from the API server's, or was set a moment ago.
	ClockSuspectReason = "ClockSuspect"
	// ActuationPausedReason means that actuation is paused in the manager: nothing is
	// carried out, emergencies included.
	ActuationPausedReason = "ActuationPaused"
)

// Reasons of events on a ScheduledMachine or its Cluster, besides the names of conditions.
const (
	// EmergencyReclaimEvent is the Warning at the start of an emergency reclaim.
	EmergencyReclaimEvent = "EmergencyReclaim"
	// EmergencyReclaimDisabledScheduleEvent is the Warning after an emergency reclaim
	// turned the schedule off.
	EmergencyReclaimDisabledScheduleEvent = "EmergencyReclaimDisabledSchedule"
	// EmergencyReclaimStalledEvent is the Warning when a machine cannot be given back at
	// once: a write is refused, or an object of the machine cannot be read. 5-Spot retries
	// until it succeeds.
	EmergencyReclaimStalledEvent = "EmergencyReclaimStalled"
	// EmergencySuppressedEvent is the Warning when an owner requests a machine while actuation
	// is paused, or when the pause starts before the reclaim is complete: the next step waits
	// until the pause ends.
	EmergencySuppressedEvent = "EmergencySuppressed"
	// ReclaimAgentBlockedEvent is the Warning on a Cluster in which a foreign object has the name
	// of one that the reclaim agent needs, or another program changes such an object each time
	// it is restored.
	ReclaimAgentBlockedEvent = "ReclaimAgentBlocked"
	// InstallationRestoredEvent is on a Cluster in which an object that 5-Spot installs was
	// changed or deleted, and is restored. It is Normal after an upgrade of 5-Spot, else a
	// Warning.
	InstallationRestoredEvent = "InstallationRestored"
	// EvictionGuardNotInstalledEvent is the Warning on a Cluster in which the eviction guard
	// cannot be installed. Machines join and leave as without one.
	EvictionGuardNotInstalledEvent = "EvictionGuardNotInstalled"
	// OwnerUnprotectedEvent is the Warning when the agent has not watched for an owner's
	// programs for some time.
	OwnerUnprotectedEvent = "OwnerUnprotected"
	// OwnerProtectedEvent is recorded when the agent watches for them again.
	OwnerProtectedEvent = "OwnerProtected"
	// HostClaimedEvent is the Warning on each of two ScheduledMachines that name the same
	// host, and when another of them comes first.
	HostClaimedEvent = "HostClaimed"
	// RecordRejectedEvent is the Warning when 5-Spot rejects a report of the Machine or its
	// Node. The recorded value stays in effect: docs/rejected-reports.md.
	RecordRejectedEvent = "RecordRejected"
	// LentAgainEvent is the Warning when a tool lends a machine again within ten minutes
	// after it was given back to its owner.
	LentAgainEvent = "LentAgain"
	// RapidReReclaimEvent is the Warning when a machine is reclaimed for the third time
	// inside ten minutes.
	RapidReReclaimEvent = "RapidReReclaim"
	// ReclaimRequestRejectedEvent is the Warning when a request comes from a Node that is not
	// the host of the Machine, or whose Machine belongs to a control plane. It is not served.
	ReclaimRequestRejectedEvent = "ReclaimRequestRejected"
	// ReclaimRequestStaleEvent says that a Node had a request that is older than its
	// Machine. The request is removed.
	ReclaimRequestStaleEvent = "ReclaimRequestStale"
	// EmergencySurgeEvent is the Warning on a Cluster when more than three of its
	// machines, and more than one in ten, are reclaimed inside ten minutes. It is
	// repeated once a minute at most. Nothing is delayed.
	EmergencySurgeEvent = "EmergencySurge"
	// DepartureCapEngagedEvent is the Warning on a Cluster when the cap defers departures. It is repeated once a minute
	// at most.
	DepartureCapEngagedEvent = "DepartureCapEngaged"
	// WipeQuarantinedEvent is the Warning on a Cluster when nearly all of its machines would
	// leave at once: they stay until three checks confirm that.
	WipeQuarantinedEvent = "WipeQuarantined"
	// WipeConfirmedEvent is the Warning on a Cluster when three checks confirmed that: the
	// machines leave.
	WipeConfirmedEvent = "WipeConfirmed"
	// KillSwitchSurgeEvent is the Warning on a Cluster when more than three of its kill switches,
	// and more than one in ten of its machines', are turned on inside ten minutes. It is repeated once a
	// minute at most. Nothing is delayed.
	KillSwitchSurgeEvent = "KillSwitchSurge"
)
