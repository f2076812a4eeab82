// SPDX-License-Identifier: Apache-2.0

package lifecycle

// A rule decides, or leaves the decision to the next rule.
type rule func(Facts) (Decision, bool)

// rules are tried in order and the first to decide wins, so order is policy:
// deletion of the object, then the kill switch, then the owner, then the
// Cluster's end, then a person's "off", then the clock.
var rules = []rule{released, deleted, killed, reclaimed, clusterGone, interrupted, disabled, unreadable, unwanted, replaced, unread, blocked, claimed}

// Decide returns the next step. It always decides.
func Decide(f Facts) Decision {
	d := first(f)
	if f.husk() {
		d.Action = RemoveNode // Whoever asked for the departure: there is nothing else to do.
	}
	d.Recheck = earliest(d.Recheck, f.Change)
	return viaPending(f, d)
}

func first(f Facts) Decision {
	for _, r := range rules {
		if d, ok := r(f); ok {
			return d
		}
	}
	return wanted(f)
}

// released lets the object go when nothing of it is left.
func released(f Facts) (Decision, bool) {
	if !f.Deleting || f.known() || f.unknown() {
		return Decision{}, false
	}
	return Decision{Phase: leavingPhase(f), Action: Release, Reason: GracefulShutdown}, true
}

// deleted departs gracefully, unless somebody asked for more.
func deleted(f Facts) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	switch {
	case f.KillSwitch:
		return Decision{Phase: leavingPhase(f), Action: Remove, Reason: KillSwitchActing, Cause: KillSwitch}, true
	case f.Reclaim:
		return Decision{Phase: leavingPhase(f), Action: Remove, Reason: KillSwitchActing, Cause: OwnerAsked}, true
	default:
		return depart(f, GracefulShutdown, ObjectDeleted), true
	}
}

func killed(f Facts) (Decision, bool) {
	switch {
	case !f.KillSwitch:
		return Decision{}, false
	case f.known(), f.unknown():
		return Decision{Phase: Terminated, Action: Remove, Reason: KillSwitchActing, Cause: KillSwitch}, true
	default:
		return Decision{Phase: Terminated, Action: Hold, Reason: KillSwitchOn}, true
	}
}

// reclaimed only says where the machine stands: the emergency lane has a
// controller of its own, which nothing may make wait.
func reclaimed(f Facts) (Decision, bool) {
	if !f.Reclaim {
		return Decision{}, false
	}
	return Decision{Phase: EmergencyRemove, Action: Hold, Reason: EmergencyReclaim}, true
}

// clusterGone leaves with the Cluster: Cluster API does not delete a Machine that
// somebody else controls, and waits for it.
func clusterGone(f Facts) (Decision, bool) {
	switch {
	case f.Cluster != ClusterLeaving:
		return Decision{}, false
	case f.known(), f.unknown():
		return depart(f, ClusterDeleting, ClusterDeleted), true
	default:
		return Decision{Phase: Inactive, Action: Hold, Reason: ClusterDeleting}, true
	}
}

// interrupted goes on with a departure: the Node may be cordoned by now, and whoever
// asked for it does not ask again.
func interrupted(f Facts) (Decision, bool) {
	if !f.Interrupted {
		return Decision{}, false
	}
	return depart(f, GracefulShutdown, ""), true // Why is on record.
}

// disabled starts nothing and stops nothing; a departure under way keeps its
// deadline.
func disabled(f Facts) (Decision, bool) {
	if f.Enabled {
		return Decision{}, false
	}
	d := underWay(f)
	d.Phase, d.Reason = Disabled, ScheduleDisabled
	return d, true
}

// unreadable leaves everything as it is: unknown is not "outside the window".
func unreadable(f Facts) (Decision, bool) {
	if f.Readable {
		return Decision{}, false
	}
	d := underWay(f)
	d.Phase, d.Reason = Pending, Unreadable
	switch f.Phase {
	case Active, ShuttingDown, Inactive:
		d.Phase = f.Phase
	default:
	}
	return d, true
}

func unwanted(f Facts) (Decision, bool) {
	switch {
	case f.Wanted:
		return Decision{}, false
	case f.known(), f.unknown() && f.Phase != Inactive:
		return depart(f, GracefulShutdown, WindowClosed), true
	default: // What was gone when it was last seen has not been made since.
		return Decision{Phase: Inactive, Action: Hold, Reason: OutsideSchedule}, true
	}
}

// replaced finishes a departure in the window before anything is made again, and
// starts one where the Machine cannot live on.
func replaced(f Facts) (Decision, bool) {
	if f.leaving() || f.broken() {
		return depart(f, GracefulShutdown, MachineReplaced), true
	}
	return Decision{}, false
}

// unread waits until everybody can be seen: nothing is made that may exist, and a Machine
// that runs goes on.
func unread(f Facts) (Decision, bool) {
	if !f.unknown() {
		return Decision{}, false
	}
	if f.Machine == Present {
		d := wanted(f)
		d.Action = Hold
		return d, true
	}
	phase := Pending
	if f.Phase == ShuttingDown {
		phase = ShuttingDown // Who cannot be seen may still be leaving.
	}
	return Decision{Phase: phase, Action: Hold, Reason: Unread}, true
}

// blocked waits for a Cluster to join. What exists already is left alone.
func blocked(f Facts) (Decision, bool) {
	if f.Cluster == ClusterPresent {
		return Decision{}, false
	}
	phase := Pending
	if f.Machine == Present {
		phase = Active
	}
	return Decision{Phase: phase, Action: Hold, Reason: NoCluster}, true
}

// claimed makes nothing where somebody else comes first. A machine that runs is left as it
// is, for nobody may take it away by naming its host.
func claimed(f Facts) (Decision, bool) {
	switch {
	case !f.Claimed:
		return Decision{}, false
	case f.Machine == Present:
		d := wanted(f)
		d.Action = Hold
		return d, true
	default:
		return Decision{Phase: Pending, Action: Hold, Reason: HostClaimed}, true
	}
}

// wanted is the rule that is left: in the window, with nothing in the way.
func wanted(f Facts) Decision {
	d := Decision{Phase: Active, Action: Ensure, Reason: MachineNotReady}
	switch {
	case f.Machine == Absent:
		d.Reason = MachineCreating
	case f.MachineReady:
		d.Reason = MachineRunning
	}
	return d
}

// depart starts a graceful departure, or continues the one under way.
func depart(f Facts, why Reason, cause Cause) Decision {
	d := underWay(f)
	d.Phase, d.Reason = ShuttingDown, why
	switch {
	case f.Machine == Leaving:
	case f.Settling:
		d.Recheck = f.SettledBy
	case f.deletable():
		d.Action = Depart
	}
	if d.Action != Hold {
		d.Cause = cause
	}
	return d
}

// Kept is what follows from a decision to take a machine away that may not be carried out
// yet: the machine goes on as it is.
func Kept(f Facts, d Decision) Decision {
	kept := wanted(f)
	if !f.Enabled {
		kept.Phase, kept.Reason = Disabled, ScheduleDisabled
	}
	kept.Action, kept.Recheck = Hold, d.Recheck
	return kept
}

// Doubted is what follows from a decision by a clock that may be wrong: nobody joins, and no
// wait of a departure ends. Whoever is not doubted decides as before.
func Doubted(d Decision, f Facts) Decision {
	switch {
	case d.Action == Ensure && f.Machine == Absent:
		return Decision{Phase: Pending, Action: Hold, Reason: ClockDoubted}
	case d.Action == Expedite:
		d.Action, d.Cause = Hold, ""
	}
	return d
}

// underWay bounds a departure that has begun: at its deadline, waiting ends.
func underWay(f Facts) Decision {
	d := Decision{Action: Hold}
	if f.Machine != Leaving || f.Expedited || f.Deadline.IsZero() {
		return d
	}
	if f.Now.Before(f.Deadline) {
		d.Recheck = f.Deadline
		return d
	}
	d.Action = Expedite
	return d
}

// leavingPhase is the phase of an object that is being deleted.
func leavingPhase(f Facts) Phase {
	switch {
	case f.KillSwitch:
		return Terminated
	case f.Reclaim:
		return EmergencyRemove
	default:
		return ShuttingDown
	}
}

// viaPending leads the way back into the schedule through Pending, where it is
// judged anew. A failed step is tried again on the way, so that Error ends only
// with success; the others start with a clean look.
func viaPending(f Facts, d Decision) Decision {
	switch d.Phase {
	case Active, Inactive, ShuttingDown:
	default:
		return d
	}
	switch {
	case f.Deleting:
		return d
	case f.Phase == Error:
	case f.Phase == "", f.Phase == Disabled, f.Phase == Terminated, f.Phase == EmergencyRemove:
		d.Action = Hold
	default:
		return d
	}
	d.Phase, d.Reason, d.Again = Pending, Judging, true
	return d
}
