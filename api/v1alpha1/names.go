// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// ScheduledMachineFinalizer holds a ScheduledMachine until its children are gone.
	ScheduledMachineFinalizer = "5spot.finos.org/scheduledmachine"

	// ScheduledMachineLabel is on every child and names its ScheduledMachine, whose
	// name is therefore no longer than a label's value may be.
	ScheduledMachineLabel = "5spot.finos.org/scheduled-machine"

	// SpecHashAnnotation is on the bootstrap config and infrastructure machine and
	// says which bootstrapSpec or infrastructureSpec they were made from.
	SpecHashAnnotation = "5spot.finos.org/spec-hash"

	// AppliedHashAnnotation is on the Machine and says which desired state was last
	// applied, so that a settled Machine is not applied again.
	AppliedHashAnnotation = "5spot.finos.org/applied-hash"

	// CreatedAnnotation is on the Machine and says when it was made, in the format of
	// RFC 3339. clusterctl move makes the object anew, and the machine runs on.
	CreatedAnnotation = "5spot.finos.org/created"

	// DepartureAnnotation is on a Machine that leaves and says why and since when. Its
	// value is a Departure in JSON. It is set before the Machine is deleted, and
	// clusterctl move carries it to an object that is not being deleted.
	DepartureAnnotation = "5spot.finos.org/departure"

	// HoldDeparturesAnnotation on a Cluster holds each departure that has not started. The exempt lane goes on: an owner's
	// request, a kill switch, the deletion of the Cluster. Its value is the reason, and may be empty.
	HoldDeparturesAnnotation = "5spot.finos.org/hold-departures"

	// EmergencyReclaimAnnotation is on a ScheduledMachine while an emergency reclaim
	// is under way. Its value is a ReclaimRecord in JSON. It is an annotation because
	// clusterctl move does not carry status.
	EmergencyReclaimAnnotation = "5spot.finos.org/emergency-reclaim"

	// ReclaimedAnnotation is on a ScheduledMachine whose schedule an emergency reclaim
	// turned off, until somebody turns it on again. Its value is a ReclaimRecord in
	// JSON.
	ReclaimedAnnotation = "5spot.finos.org/reclaimed"

	// LastReclaimAnnotation is on a ScheduledMachine that was reclaimed, also after the schedule
	// is on again. Its value is the ReclaimRecord in JSON. 5-Spot does not serve that request twice.
	LastReclaimAnnotation = "5spot.finos.org/last-reclaim"

	// InheritedAnnotation is on a ScheduledMachine that was made again under the name of
	// one whose owner had the machine. Its value is the UID of the ReclaimedMachine that
	// said so.
	InheritedAnnotation = "5spot.finos.org/inherited"

	// HostReclaimedAnnotation is on a ScheduledMachine to which an owner's request to
	// another of the same host was passed on. Its value says which request that was, so
	// that it is passed on once.
	HostReclaimedAnnotation = "5spot.finos.org/host-reclaimed"
	// LentAgainAnnotation is on a ScheduledMachine that a tool lent again soon after its
	// owner had taken the machine back, as long as the condition LentAgain is True. Its value
	// says in JSON which tool and when.
	LentAgainAnnotation = "5spot.finos.org/lent-again"

	// NodeAppliedTaintsAnnotation is on a Node and says which of its taints we applied:
	// a list of key, value and effect in JSON. It is not in status, because it is
	// written together with the taints, and because clusterctl move does not carry
	// status.
	NodeAppliedTaintsAnnotation = "5spot.finos.org/applied-taints"

	// NodeStoppingPodsAnnotation is on a Node whose pods are being stopped in order, and says
	// which these are: a JSON object of their priorities by UID. It is written together with
	// the taint 5spot.finos.org/leaving.
	NodeStoppingPodsAnnotation = "5spot.finos.org/stopping-pods"

	// PodDeletionPriorityAnnotation is on a pod and says when it is stopped on a Node
	// that leaves: those with the highest number first. Its value is a whole number.
	PodDeletionPriorityAnnotation = "5spot.finos.org/deletion-priority"

	// NodeLeavingTaint is the key of the NoSchedule taint on a Node whose pods are being stopped in
	// order, so that they do not come back.
	NodeLeavingTaint = "5spot.finos.org/leaving"

	// ReclaimTimesAnnotation is on a ScheduledMachine that was reclaimed and says when
	// that began, for the last three times: so many inside ten minutes are reported.
	ReclaimTimesAnnotation = "5spot.finos.org/reclaim-times"

	// PreDrainHookAnnotation is on every Machine of a ScheduledMachine, and on any other
	// that is to leave in the same way. Cluster API waits for it before it cordons and
	// drains the Node. 5-Spot takes it off.
	PreDrainHookAnnotation = "pre-drain.delete.hook.machine.cluster.x-k8s.io/5spot"

	// PreTerminateHookAnnotation is on the same Machines. Cluster API waits for it
	// before it deletes the infrastructure.
	PreTerminateHookAnnotation = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/5spot"

	// TopologyOwnedLabel is on every ScheduledMachine that was made from the variable of
	// a Cluster's topology. It has no value. If somebody removes it, the topology leaves
	// the ScheduledMachine alone.
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
	// outside the cluster. To wait until the machine is in the cluster, use
	// MachineReady.
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
	// OwnerProtectedCondition is True when the reclaim agent runs on the Node and looks
	// for what the spec asks for. It is absent where the spec asks for nothing, or where
	// there is no Node. It is Unknown where the Node is not believed that the Machine names.
	OwnerProtectedCondition = "OwnerProtected"
	// HostClaimedCondition is True while another ScheduledMachine names the same host: by
	// address, provider ID, name of the Node or machine ID. It is absent otherwise.
	HostClaimedCondition = "HostClaimed"
	// LentAgainCondition is True, as a warning, when a tool turned the schedule on within
	// ten minutes after the machine was given back to its owner. It is absent otherwise,
	// and goes away after 24 hours, when the schedule is off, and with
	// resumeAfterReclaim: OnResume.
	LentAgainCondition = "LentAgain"
	// DepartureGatedCondition is True while the machine is to leave and a safety rail keeps
	// the departure from starting: until then it stays as it is. It is absent otherwise.
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
	// ReadyToLeaveCondition is on a Machine that is being deleted, while and after
	// extensions were asked: True when nobody holds it any more.
	ReadyToLeaveCondition = "5spot.finos.org/ReadyToLeave"
)

// Condition types of a Node, in the words of KEP-5683. One that has another reason than those
// below is somebody else's, and is left alone.
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
	// NodeWindowClosesReason means that the window of the ScheduledMachine closes soon; the
	// message says when.
	NodeWindowClosesReason = "ScheduledMachineWindowCloses"
	// NodeLeavesReason means that the machine leaves; the message says why.
	NodeLeavesReason = "ScheduledMachineLeaves"
	// NodeDrainedReason means that the drain is done.
	NodeDrainedReason = "ScheduledMachineDrained"
)

// Condition types of a Cluster.
const (
	// ScheduledMachinesAppliedCondition is on a Cluster whose topology has the variable
	// scheduledMachines, or had it until its machines are gone: True when there are exactly
	// the ScheduledMachines that it asks for. Each of them reports whether it runs.
	ScheduledMachinesAppliedCondition = "5spot.finos.org/ScheduledMachinesApplied"
)

// Reasons of the ScheduledMachinesApplied condition of a Cluster.
const (
	// VariableAppliedReason means that there are exactly the ScheduledMachines that the
	// variable asks for.
	VariableAppliedReason = "VariableApplied"
	// VariableInvalidReason means that the variable cannot be used: nothing is changed,
	// and what exists stays.
	VariableInvalidReason = "VariableInvalid"
	// NameTakenReason means that a ScheduledMachine of somebody else has a name that the
	// variable asks for. It is left alone.
	NameTakenReason = "NameTaken"
	// MachinesLeavingReason means that ScheduledMachines are leaving, because the
	// variable does not ask for them, or before they are created anew.
	MachinesLeavingReason = "MachinesLeaving"
	// MachinesPausedReason means that ScheduledMachines are paused and differ from the variable.
	MachinesPausedReason = "MachinesPaused"
	// ApplyFailedReason means that a ScheduledMachine could not be written; the message
	// says why.
	ApplyFailedReason = "ApplyFailed"
)

// Reasons of the ReadyToLeave condition of a Machine.
const (
	// AskingReason means that those who are asked have not answered yet.
	AskingReason = "Asking"
	// WaitingForExtensionReason means that an extension holds the deletion, and maybe others.
	WaitingForExtensionReason = "WaitingForExtension"
	// WaitingForLoadBalancersReason means that load balancers have not let the Node go yet.
	WaitingForLoadBalancersReason = "WaitingForLoadBalancers"
	// WaitingForOperatorsReason means that operators have not moved their pods away from the Node yet.
	WaitingForOperatorsReason = "WaitingForOperators"
	// StoppingPodsReason means that pods of the Node are being stopped in order.
	StoppingPodsReason = "StoppingPods"
	// ExtensionsDoneReason means that nobody holds the deletion any more.
	ExtensionsDoneReason = "ExtensionsDone"
	// NotWaitedForReason means that nobody holds the deletion any more, although somebody missed
	// a deadline, or failed and is ignored; the message says who.
	NotWaitedForReason = "NotWaitedFor"
)

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
	// ClusterNotServedReason means that the Cluster lacks the label that this manager's
	// watch filter requires.
	ClusterNotServedReason = "ClusterNotServed"
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
	// TaintOwnershipConflictReason means that somebody else holds a taint of the spec with
	// another value, or it is unknown which taints are ours; nothing is written.
	TaintOwnershipConflictReason = "TaintOwnershipConflict"
)

// Reasons of the HostClaimed condition.
const (
	// ClaimedByAnotherReason means that another ScheduledMachine comes first: it uses the
	// host, or has named it for longer. This one creates nothing; its running machine stays.
	ClaimedByAnotherReason = "ClaimedByAnother"
	// ClaimedFirstReason means that this one comes first, and goes on.
	ClaimedFirstReason = "ClaimedFirst"
	// OwnerHasHostReason means that the owner of the host asked for it through another
	// ScheduledMachine, and has not lent it again. This one creates nothing.
	OwnerHasHostReason = "OwnerHasHost"
	// SameMachineIDReason means that another machine has the same machine ID: it is the
	// same host, or a copy of the same image. Both go on.
	SameMachineIDReason = "SameMachineID"
)

// Reasons of the OwnerProtected condition.
const (
	// WatchingReason means that the agent looks for the programs of the spec; the message
	// says by which detector.
	WatchingReason = "Watching"
	// AgentNotInstalledReason means that the agent could not be installed, or somebody
	// else must install it and has not; the message says which, and what to do.
	AgentNotInstalledReason = "AgentNotInstalled"
	// AgentNotRunningReason means that no pod of the agent is Ready on the Node; the
	// message says why.
	AgentNotRunningReason = "AgentNotRunning"
	// CannotSeeProcessesReason means that the agent runs and cannot read the processes of
	// other users, so that it notices no program of the owner. The message says what to do.
	CannotSeeProcessesReason = "CannotSeeProcesses"
	// HostChangedReason means that the machine ID of the Node is not the one that it had at
	// first, or not that of its host: requests of the owner are refused. The message names
	// one that was.
	HostChangedReason = "HostChanged"
	// ConfigurationPendingReason means that the agent looks for other programs than those
	// of the spec, because it has not read them yet.
	ConfigurationPendingReason = "ConfigurationPending"
	// ConfigurationUnconfirmedReason means that the agent runs and does not say what it
	// looks for: it is older than the manager.
	ConfigurationUnconfirmedReason = "ConfigurationUnconfirmed"
	// AgentUnseenReason means that the agent's pods, or the Node, cannot be read.
	AgentUnseenReason = "AgentUnseen"
	// NodeNotBelievedReason means that the Machine names a Node that is not believed to be
	// its own: no agent is put there for it. The message says why, and what to do.
	NodeNotBelievedReason = "NodeNotBelieved"
)

// Reasons of the LentAgain condition.
const (
	// EnabledByToolReason means that no person is known to have set schedule.enabled; the
	// message says who has, as far as Kubernetes records that, and the way out.
	EnabledByToolReason = "EnabledByTool"
)

// Reasons of the DepartureGated condition.
const (
	// BlastRadiusCapReason means that as many machines of the Cluster are leaving now as may
	// leave at a time. This one leaves in its turn.
	BlastRadiusCapReason = "BlastRadiusCap"
	// WipeQuarantineReason means that nearly all machines of the Cluster are to leave at
	// once, which is confirmed first.
	WipeQuarantineReason = "WipeQuarantine"
	// DeparturesHeldReason means that a person holds the departures of the Cluster.
	DeparturesHeldReason = "DeparturesHeld"
	// WarmUpReason means that the manager has only just begun to lead, and does not know
	// yet what left before.
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
	// once: a step is refused, or what is left of the machine cannot be read. It is
	// retried until it succeeds.
	EmergencyReclaimStalledEvent = "EmergencyReclaimStalled"
	// EmergencySuppressedEvent is the Warning when an owner asks for a machine while actuation
	// is paused: nothing is done until the pause ends.
	EmergencySuppressedEvent = "EmergencySuppressed"
	// ReclaimAgentBlockedEvent is the Warning on a Cluster in which an object of
	// somebody else has the name of one that the reclaim agent needs, or another program
	// changes such an object each time it is restored.
	ReclaimAgentBlockedEvent = "ReclaimAgentBlocked"
	// InstallationRestoredEvent is on a Cluster in which an object that 5-Spot installs was
	// changed or deleted, and is restored. It is Normal after an upgrade of 5-Spot, else a
	// Warning.
	InstallationRestoredEvent = "InstallationRestored"
	// EvictionGuardNotInstalledEvent is the Warning on a Cluster in which the eviction guard
	// cannot be installed. Machines join and leave as without one.
	EvictionGuardNotInstalledEvent = "EvictionGuardNotInstalled"
	// OwnerUnprotectedEvent is the Warning when the agent has not looked for an owner's
	// programs for some time.
	OwnerUnprotectedEvent = "OwnerUnprotected"
	// OwnerProtectedEvent says that the agent looks for them again.
	OwnerProtectedEvent = "OwnerProtected"
	// HostClaimedEvent is the Warning on each of two ScheduledMachines that name the same
	// host, and when another of them comes first.
	HostClaimedEvent = "HostClaimed"
	// RecordRejectedEvent is the Warning when the Machine or its Node says something that is
	// not believed. What was known before still counts: docs/rejected-reports.md.
	RecordRejectedEvent = "RecordRejected"
	// LentAgainEvent is the Warning when a tool lends a machine again within ten minutes
	// after it was given back to its owner.
	LentAgainEvent = "LentAgain"
	// RapidReReclaimEvent is the Warning when a machine is reclaimed for the third time
	// inside ten minutes.
	RapidReReclaimEvent = "RapidReReclaim"
	// ReclaimRequestRefusedEvent is the Warning when a request comes from a Node that
	// is not the host of the Machine, or whose Machine belongs to a control plane.
	// Nothing is done.
	ReclaimRequestRefusedEvent = "ReclaimRequestRefused"
	// ReclaimRequestStaleEvent says that a Node had a request that is older than its
	// Machine. The request is removed.
	ReclaimRequestStaleEvent = "ReclaimRequestStale"
	// EmergencySurgeEvent is the Warning on a Cluster when more than three of its
	// machines, and more than one in ten, are reclaimed inside ten minutes. It is
	// repeated once a minute at most. Nothing is delayed.
	EmergencySurgeEvent = "EmergencySurge"
	// DepartureCapEngagedEvent is the Warning on a Cluster when machines that are to leave
	// wait for others. It is repeated once a minute at most.
	DepartureCapEngagedEvent = "DepartureCapEngaged"
	// WipeQuarantinedEvent is the Warning on a Cluster when nearly all of its machines are to
	// leave at once: they stay until that has been confirmed.
	WipeQuarantinedEvent = "WipeQuarantined"
	// WipeConfirmedEvent is the Warning on a Cluster when that has been confirmed: the
	// machines leave.
	WipeConfirmedEvent = "WipeConfirmed"
	// KillSwitchSurgeEvent is the Warning on a Cluster when more than three of its kill switches,
	// and more than one in ten of its machines', are turned on inside ten minutes. It is repeated once a
	// minute at most. Nothing is delayed.
	KillSwitchSurgeEvent = "KillSwitchSurge"
)
