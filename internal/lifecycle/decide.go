// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
)

// A rule returns a decision, or false if the next rule decides.
type rule func(Facts) (Decision, bool)

// rules are evaluated in order, and the first decision counts. The order is policy: deletion of the object,
// kill switch, owner's request, end of the Cluster, interrupted departure, disabled schedule, schedule.
var rules = []rule{deleted, killed, reclaimed, clusterGone, interrupted, disabled, unreadable, unwanted, replaced, unread, blocked, claimed}

// scheduled are the phases of a machine that follows its schedule.
var scheduled = []Phase{Active, Inactive, ShuttingDown}

// Decide returns the next decision. It always returns one.
func Decide(f Facts) Decision {
	d := firstDecision(f)
	if f.nodeOutlivedMachine() {
		d.Action = RemoveNode // Nothing else is left to do, whatever caused the departure.
	}
	d.Recheck = instant.Earliest(d.Recheck, f.Change)
	return suspended(f, viaPending(f, d))
}

func firstDecision(f Facts) Decision {
	for _, r := range rules {
		if d, ok := r(f); ok {
			return d
		}
	}
	return wanted(f)
}

// deleted removes the finalizer when no child is left. Until then it departs gracefully, unless the kill switch or the
// owner requests more.
func deleted(f Facts) (Decision, bool) {
	d := Decision{Phase: leavingPhase(f), Action: Remove, Reason: KillSwitchActing}
	switch {
	case !f.Deleting:
		return Decision{}, false
	case !f.known() && !f.unknown():
		d.Action, d.Reason = Release, GracefulShutdown
	case f.KillSwitch:
		d.Cause = KillSwitch
	case f.Reclaim:
		d.Cause = OwnerRequested
	default:
		return depart(f, GracefulShutdown, ObjectDeleted), true
	}
	return d, true
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

// reclaimed reports the phase. controllers/reclaim carries out emergency reclaims, except for an object that is being
// deleted (see deleted). Decide adds the deletion of a Node that outlived its machine.
func reclaimed(f Facts) (Decision, bool) {
	if !f.Reclaim {
		return Decision{}, false
	}
	return Decision{Phase: EmergencyRemove, Action: Hold, Reason: EmergencyReclaim}, true
}

// clusterGone departs with the Cluster. Cluster API does not delete a Machine that has another controller, and
// waits for it.
func clusterGone(f Facts) (Decision, bool) {
	switch {
	case f.Cluster != Leaving:
		return Decision{}, false
	case f.known(), f.unknown():
		return depart(f, ClusterDeleting, ClusterDeleted), true
	default:
		return Decision{Phase: Inactive, Action: Hold, Reason: ClusterDeleting}, true
	}
}

// interrupted continues a departure: the Node may be cordoned, and the original trigger may not occur again.
func interrupted(f Facts) (Decision, bool) {
	if !f.Interrupted {
		return Decision{}, false
	}
	return depart(f, GracefulShutdown, ""), true // The record has the cause.
}

// disabled starts and stops nothing. A departure in progress keeps its deadline.
func disabled(f Facts) (Decision, bool) {
	if f.Enabled {
		return Decision{}, false
	}
	d := underWay(f)
	d.Phase, d.Reason = Disabled, ScheduleDisabled
	return d, true
}

// unreadable makes no change: a schedule that cannot be parsed is not the same as a closed window.
func unreadable(f Facts) (Decision, bool) {
	if f.Readable {
		return Decision{}, false
	}
	d := underWay(f)
	d.Phase, d.Reason = Pending, ScheduleUnreadable
	if slices.Contains(scheduled, f.Phase) {
		d.Phase = f.Phase
	}
	return d, true
}

func unwanted(f Facts) (Decision, bool) {
	switch {
	case f.Wanted:
		return Decision{}, false
	case f.known(), f.unknown() && f.Phase != Inactive:
		return depart(f, GracefulShutdown, WindowClosed), true
	// An object that was gone at the last read has not been created since.
	default:
		return Decision{Phase: Inactive, Action: Hold, Reason: OutsideSchedule}, true
	}
}

// replaced completes a departure inside the window before anything is created again. It starts a departure for
// a broken Machine.
func replaced(f Facts) (Decision, bool) {
	if f.leaving() || f.broken() {
		return depart(f, GracefulShutdown, MachineReplaced), true
	}
	return Decision{}, false
}

// unread waits until every child can be read: it creates no object that may exist. A running Machine continues.
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
		phase = ShuttingDown // The unreadable child may still be leaving.
	}
	return Decision{Phase: phase, Action: Hold, Reason: ReferencesUnreadable}, true
}

// blocked waits for the Cluster. Existing objects stay unchanged.
func blocked(f Facts) (Decision, bool) {
	if f.Cluster == Present {
		return Decision{}, false
	}
	phase := Pending
	if f.Machine == Present {
		phase = Active
	}
	return Decision{Phase: phase, Action: Hold, Reason: NoCluster}, true
}

// claimed creates nothing while another object has precedence on the host. A running machine stays: another object must
// not remove it by naming its host.
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

// wanted is the default: the machine is wanted and no rule prevents it.
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

// depart starts a graceful departure or continues it.
func depart(f Facts, why Reason, cause Cause) Decision {
	d := underWay(f)
	d.Phase, d.Reason = ShuttingDown, why
	switch {
	case f.Machine == Leaving:
	case f.Settling:
		d.Recheck = f.SettledBy
	case f.Machine == Present && !f.Exempt:
		return requestDeparture(f, cause)
	case f.deletable():
		d.Action = Depart
	}
	if d.Action != Hold {
		d.Cause = cause
	}
	return d
}

// requestDeparture requests the admission of a departure. The machine stays as it is.
func requestDeparture(f Facts, cause Cause) Decision {
	d := wanted(f)
	if !f.Enabled {
		d.Phase, d.Reason = Disabled, ScheduleDisabled
	}
	d.Action, d.Cause = RequestDeparture, cause
	return d
}

// suspended suspends a decision while the clock may be wrong: no machine joins, and no wait of a departure ends. The
// planner holds departures that have not started, by the same clock.
func suspended(f Facts, d Decision) Decision {
	switch {
	case !f.ClockSuspect:
	case d.Action == Ensure && f.Machine == Absent:
		return Decision{Phase: Pending, Action: Hold, Reason: ClockSuspect, Suspended: true}
	case d.Action == Expedite:
		d.Action, d.Cause, d.Suspended = Hold, "", true
	}
	return d
}

// underWay ends the waits of a departure at its deadline.
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

// leavingPhase returns the phase of an object that is being deleted.
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

// viaPending inserts the phase Pending before a machine returns to the schedule. After Error, the failed action
// is retried in Pending. After other phases, nothing is done until the next decision.
func viaPending(f Facts, d Decision) Decision {
	if f.Deleting || !slices.Contains(scheduled, d.Phase) {
		return d
	}
	switch f.Phase {
	case Error:
	case "", Disabled, Terminated, EmergencyRemove:
		d.Action = Hold
	default:
		return d
	}
	d.Phase, d.Reason, d.Again = Pending, NotEvaluated, true
	return d
}
