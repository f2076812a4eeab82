// SPDX-License-Identifier: Apache-2.0

// Package lifecycle answers one question: given what is, what should be done for
// a machine now, in which phase is it, and when must somebody look again? It
// knows nothing about Kubernetes, and the time is a fact like any other.
package lifecycle

import "time"

// Phase is where a machine stands. The values are those of the API.
type Phase string

// The phases of a machine; the empty phase is that of one never judged before.
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

// Presence is what is known of one child.
type Presence string

// The presences of a child; the zero value is absence.
const (
	// Absent means that there is none.
	Absent Presence = ""
	// Present means that it exists and nobody deletes it.
	Present Presence = "Present"
	// Leaving means that it is being deleted.
	Leaving Presence = "Leaving"
	// Unknown means that nobody could tell. It is never a reason to take anything away,
	// or to make it again.
	Unknown Presence = "Unknown"
)

// ClusterState is what is known of the Cluster.
type ClusterState string

// The states of a Cluster; the zero value is absence.
const (
	// ClusterMissing means that there is no such Cluster.
	ClusterMissing ClusterState = ""
	// ClusterPresent means that the Cluster exists.
	ClusterPresent ClusterState = "Present"
	// ClusterLeaving means that the Cluster is being deleted.
	ClusterLeaving ClusterState = "Leaving"
)

// Action is the one thing to do now.
type Action string

// The actions. Each is idempotent: doing it twice does what doing it once does.
const (
	// Hold does nothing.
	Hold Action = "Hold"
	// Ensure makes what is missing and keeps the Machine's metadata as the spec has it.
	Ensure Action = "Ensure"
	// Depart starts or continues a graceful departure.
	Depart Action = "Depart"
	// Expedite ends the waiting of a departure whose budget is over.
	Expedite Action = "Expedite"
	// Remove takes the machine out at once, without drain or grace.
	Remove Action = "Remove"
	// RemoveNode deletes the Node of a machine that is gone, whose Machine lingers.
	RemoveNode Action = "RemoveNode"
	// Release lets the object itself go: nothing of it is left.
	Release Action = "Release"
)

// Reason says why, in a word. The values are reasons of the API's conditions.
type Reason string

// The reasons of a decision.
const (
	MachineRunning   Reason = "MachineRunning"
	MachineNotReady  Reason = "MachineNotReady"
	MachineCreating  Reason = "MachineCreating"
	OutsideSchedule  Reason = "Inactive"
	ScheduleDisabled Reason = "Disabled"
	KillSwitchOn     Reason = "Terminated"
	KillSwitchActing Reason = "Terminating"
	GracefulShutdown Reason = "ShuttingDown"
	EmergencyReclaim Reason = "EmergencyReclaim"
	ClusterDeleting  Reason = "ClusterDeleting"
	Unreadable       Reason = "ScheduleUnreadable"
	NoCluster        Reason = "ReferencesInvalid"
	Unread           Reason = "ReferencesUnreadable"
	HostClaimed      Reason = "HostClaimed"
	ClockDoubted     Reason = "ClockSuspect"
	Judging          Reason = "Pending"
)

// Cause is why a machine departs. The values are those of the record on the Machine.
type Cause string

// The causes of a departure; the zero value is none.
const (
	WindowClosed    Cause = "WindowClosed"
	ObjectDeleted   Cause = "Deleted"
	MachineReplaced Cause = "Replaced"
	ClusterDeleted  Cause = "ClusterDeleted"
	KillSwitch      Cause = "KillSwitch"
	OwnerAsked      Cause = "EmergencyReclaim"
)

// Facts are what one look at a machine shows.
type Facts struct {
	// Now is the instant of the look.
	Now time.Time
	// Phase is the phase that was last reported, empty for a new object.
	Phase Phase

	// Deleting says that the object itself is being deleted.
	Deleting bool
	// KillSwitch, Reclaim and Enabled are what people and the agent ask for.
	KillSwitch, Reclaim, Enabled bool

	// Readable says that the schedule can be judged. False is "unknown", which is
	// never the same as "outside the window".
	Readable bool
	// Wanted is the schedule's answer, and Change when it flips; zero is never.
	Wanted bool
	Change time.Time

	// Cluster is the state of the Cluster that the machine belongs to.
	Cluster ClusterState

	// Claimed says that somebody else comes first on the host that is named.
	Claimed bool

	// Bootstrap, Infrastructure and Machine are the children, foreign objects of the
	// same name not among them.
	Bootstrap, Infrastructure, Machine Presence
	// MachineReady says that the Machine is ready.
	MachineReady bool
	// MachineFailed says that the Machine can never become ready, or that a health
	// check asks its owner to replace it.
	MachineFailed bool
	// Interrupted says that the Machine's departure had begun, and that nobody deletes it
	// any more: it was moved from another management cluster.
	Interrupted bool
	// Settling says that a Machine was moved here, and that Cluster API has not found its
	// Node again: deleted now, it would leave the Node behind. SettledBy is when that is
	// not waited for any more; zero: only an event of the Machine ends the wait.
	Settling  bool
	SettledBy time.Time
	// Deadline is when the budget of a departure under way is over; zero while the
	// Machine is not leaving.
	Deadline time.Time
	// Expedited says that all waiting of the departure has been ended already.
	Expedited bool
	// Node is the Node of a Machine that is expedited and whose infrastructure is gone:
	// Present or Leaving only if it is known to be that of this very Machine. Before, it
	// is not looked at.
	Node Presence
}

// Decision is what to do, what to report and when to look again.
type Decision struct {
	// Phase to report, if Action succeeds.
	Phase Phase
	// Action to carry out.
	Action Action
	// Reason why.
	Reason Reason
	// Cause is why the machine departs, if Action takes it away.
	Cause Cause
	// Recheck is the next instant at which time alone changes the decision; zero is
	// never.
	Recheck time.Time
	// Again says that the next decision follows at once.
	Again bool
}

// known reports whether any child is known to be left.
func (f Facts) known() bool {
	return f.Machine != Absent || there(f.Infrastructure) || there(f.Bootstrap)
}

// unknown reports whether a child may be left of which nobody knows.
func (f Facts) unknown() bool {
	return f.Infrastructure == Unknown || f.Bootstrap == Unknown
}

func there(p Presence) bool { return p == Present || p == Leaving }

// leaving reports whether a departure is under way. A bootstrap config that
// somebody deletes below a living Machine is none: it has done its work.
func (f Facts) leaving() bool {
	if f.Machine == Present {
		return false
	}
	return f.Machine == Leaving || f.Bootstrap == Leaving || f.Infrastructure == Leaving
}

// husk reports whether the Node stands for a machine that is gone. Cluster API deletes it,
// too, but may not look for 20 s.
func (f Facts) husk() bool {
	return f.Machine == Leaving && f.Expedited && f.Infrastructure == Absent && f.Node == Present
}

// broken reports whether the Machine must be replaced: Cluster API does not mend a
// Machine whose infrastructure went away, it replaces it.
func (f Facts) broken() bool {
	return f.Machine == Present && (f.Infrastructure == Absent || f.Infrastructure == Leaving || f.MachineFailed)
}

// deletable reports whether there is something to delete in a departure, besides what is
// being deleted already. A Machine takes the other two with it. Without one the bootstrap
// config is the last to go, and not before the infrastructure is known to be gone.
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

// earliest returns the first of the instants that is not zero.
func earliest(instants ...time.Time) time.Time {
	var first time.Time
	for _, t := range instants {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
