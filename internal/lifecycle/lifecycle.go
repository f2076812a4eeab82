// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides the next action for a machine, its phase, and when to reconcile again. It is pure:
// it imports no Kubernetes package, and gets the time as an input. Decide is for ordinary reconciles,
// DecideReclaim for emergency reclaims.
package lifecycle

import "time"

// Phase is the state of a machine. The values are the ones of the API.
type Phase string

// The phases of a machine. The empty phase is a machine before its first decision.
const (
	Pending         Phase = "Pending"
	Active          Phase = "Active"
	ShuttingDown    Phase = "ShuttingDown"
	Inactive        Phase = "Inactive"
	Disabled        Phase = "Disabled"
	Terminated      Phase = "Terminated"
	EmergencyRemove Phase = "EmergencyRemove"
	Error           Phase = "Error"
)

// Presence is the state of an object: a child, a Node or the Cluster.
type Presence string

// The presences of an object. The zero value is absence.
const (
	// Absent means that the object does not exist.
	Absent Presence = ""
	// Present means that it exists and is not being deleted.
	Present Presence = "Present"
	// Leaving means that it is being deleted.
	Leaving Presence = "Leaving"
	// Unknown means that it could not be read. It never causes a deletion or a creation.
	Unknown Presence = "Unknown"
)

// Action is the next action for a machine.
type Action string

// The actions. Each is idempotent.
const (
	// Hold does nothing.
	Hold Action = "Hold"
	// Ensure creates missing objects and updates the Machine's metadata to the spec.
	Ensure Action = "Ensure"
	// RequestDeparture requests the admission of a graceful departure. The planner deletes the Machine.
	RequestDeparture Action = "RequestDeparture"
	// Depart starts or continues a graceful departure.
	Depart Action = "Depart"
	// Expedite ends the waits of a departure whose budget is over.
	Expedite Action = "Expedite"
	// Remove removes the machine at once, without drain or grace.
	Remove Action = "Remove"
	// RemoveNode deletes the Node of a machine that is gone while its Machine still exists.
	RemoveNode Action = "RemoveNode"
	// Release removes the finalizer from the ScheduledMachine: no child is left.
	Release Action = "Release"
)

// Departs reports whether an action starts, continues or ends a departure.
func (a Action) Departs() bool {
	switch a {
	case RequestDeparture, Depart, Expedite, Remove:
		return true
	default:
		return false
	}
}

// Reason is why. The values are reasons of the API's conditions.
type Reason string

// The reasons of a decision.
const (
	MachineRunning       Reason = "MachineRunning"
	MachineNotReady      Reason = "MachineNotReady"
	MachineCreating      Reason = "MachineCreating"
	OutsideSchedule      Reason = "Inactive"
	ScheduleDisabled     Reason = "Disabled"
	KillSwitchOn         Reason = "Terminated"
	KillSwitchActing     Reason = "Terminating"
	GracefulShutdown     Reason = "ShuttingDown"
	EmergencyReclaim     Reason = "EmergencyReclaim"
	ClusterDeleting      Reason = "ClusterDeleting"
	ScheduleUnreadable   Reason = "ScheduleUnreadable"
	NoCluster            Reason = "ReferencesInvalid"
	ReferencesUnreadable Reason = "ReferencesUnreadable"
	HostClaimed          Reason = "HostClaimed"
	ClockSuspect         Reason = "ClockSuspect"
	NotEvaluated         Reason = "Pending"
)

// Cause is why a machine leaves. The values are the ones of the departure record on the Machine.
type Cause string

// The causes of a departure. The zero value is none.
const (
	WindowClosed    Cause = "WindowClosed"
	ObjectDeleted   Cause = "Deleted"
	MachineReplaced Cause = "Replaced"
	ClusterDeleted  Cause = "ClusterDeleted"
	KillSwitch      Cause = "KillSwitch"
	OwnerRequested  Cause = "EmergencyReclaim"
)

// Facts are the observed state of a machine.
type Facts struct {
	// Now is the instant of the observation.
	Now time.Time
	// Phase is the phase in the status, empty for a new object.
	Phase Phase

	// Deleting reports that the ScheduledMachine is being deleted.
	Deleting bool
	// KillSwitch, Reclaim and Enabled are the requests of people and of the agent.
	KillSwitch, Reclaim, Enabled bool

	// Readable reports that the schedule can be evaluated. False means unknown, which is not the same as
	// outside the window.
	Readable bool
	// Wanted is the result of the schedule. Change is when it changes, zero if never.
	Wanted bool
	Change time.Time

	// Cluster is the state of the Cluster that the machine belongs to. It is never Unknown.
	Cluster Presence

	// Claimed reports that another object has precedence on the named host.
	Claimed bool

	// Bootstrap, Infrastructure and Machine are the states of the children. An object of the same name that
	// 5-Spot did not make does not count.
	Bootstrap, Infrastructure, Machine Presence
	// MachineReady reports that the Machine is ready.
	MachineReady bool
	// MachineFailed reports that the Machine can never become ready, or that a health check requests its
	// replacement.
	MachineFailed bool
	// Interrupted reports that the Machine has the departure record of another Machine, or one that began as such, and
	// is not being deleted: clusterctl move or a restore brought it.
	Interrupted bool
	// Exempt reports that a departure needs no admission of the planner.
	Exempt bool
	// ClockSuspect reports that Now may be wrong.
	ClockSuspect bool
	// Settling reports that a Machine was moved here and that Cluster API has not found its Node yet. A
	// deletion now would leave the Node behind. SettledBy is when that wait ends. With zero, only an event of
	// the Machine ends it.
	Settling  bool
	SettledBy time.Time
	// Deadline is when the budget of the current departure is over. It is zero while the Machine is not
	// leaving.
	Deadline time.Time
	// Expedited reports that all waits of the departure have been ended, and the infrastructure is being deleted.
	Expedited bool
	// Node is the Node of an expedited Machine whose infrastructure is gone. It is Present or Leaving only if
	// it is known to be the Node of this Machine. It is not read earlier.
	Node Presence
}

// Decision is the action, the phase to report, and when to reconcile again.
type Decision struct {
	// Phase is the phase to report if Action succeeds.
	Phase Phase
	// Action is the action to carry out.
	Action Action
	// Reason is why.
	Reason Reason
	// Cause is why the machine leaves, if Action removes it.
	Cause Cause
	// Recheck is the next instant at which the decision changes by time alone, zero if never.
	Recheck time.Time
	// Again reports that the next decision follows immediately.
	Again bool
	// Suspended reports that a suspect clock suspends the action that would follow otherwise.
	Suspended bool
}

// known reports whether a child is known to be left.
func (f Facts) known() bool {
	return f.Machine != Absent || exists(f.Infrastructure) || exists(f.Bootstrap)
}

// unknown reports whether a child could not be read.
func (f Facts) unknown() bool {
	return f.Infrastructure == Unknown || f.Bootstrap == Unknown
}

func exists(p Presence) bool { return p == Present || p == Leaving }

// leaving reports whether a departure is in progress. The deletion of the bootstrap config of a running Machine
// does not count: the Machine no longer needs it.
func (f Facts) leaving() bool {
	if f.Machine == Present {
		return false
	}
	return f.Machine == Leaving || f.Bootstrap == Leaving || f.Infrastructure == Leaving
}

// nodeOutlivedMachine reports whether the Node belongs to a machine that is gone. Cluster API deletes this Node too,
// but possibly 20 s later.
func (f Facts) nodeOutlivedMachine() bool {
	return f.Machine == Leaving && f.Expedited && f.Infrastructure == Absent && f.Node == Present
}

// broken reports whether the Machine must be replaced. Cluster API does not repair a Machine whose
// infrastructure was deleted.
func (f Facts) broken() bool {
	return f.Machine == Present && (f.Infrastructure == Absent || f.Infrastructure == Leaving || f.MachineFailed)
}

// deletable reports whether an object must be deleted in a departure. The deletion of a Machine deletes the
// other two. Without a Machine, the bootstrap config is deleted last, after the infrastructure is known to be
// gone.
func (f Facts) deletable() bool {
	switch f.Machine {
	case Present:
		return true
	case Absent:
		return f.Infrastructure == Present || f.Infrastructure == Absent && f.Bootstrap == Present
	default:
		return false
	}
}
