// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

var (
	phases    = []lifecycle.Phase{"", lifecycle.Pending, lifecycle.Active, lifecycle.ShuttingDown, lifecycle.Inactive, lifecycle.Disabled, lifecycle.Terminated, lifecycle.EmergencyRemove, lifecycle.Error}
	presences = []lifecycle.Presence{lifecycle.Absent, lifecycle.Present, lifecycle.Leaving, lifecycle.Unknown}
	clusters  = []lifecycle.Presence{lifecycle.Absent, lifecycle.Present, lifecycle.Leaving}
)

// everything yields every combination of facts. Deadlines are before, at and after now. Other instants are
// after now, or zero.
func everything() iter.Seq[lifecycle.Facts] {
	type facts = lifecycle.Facts
	both := []bool{false, true}
	all := iter.Seq[facts](func(yield func(facts) bool) { yield(facts{Now: noon, Exempt: true}) })
	all = with(all, phases, func(f *facts, p lifecycle.Phase) { f.Phase = p })
	all = with(all, clusters, func(f *facts, c lifecycle.Presence) { f.Cluster = c })
	all = with(all, both, func(f *facts, b bool) { f.Deleting = b })
	all = with(all, both, func(f *facts, b bool) { f.KillSwitch = b })
	all = with(all, both, func(f *facts, b bool) { f.Reclaim = b })
	all = with(all, both, func(f *facts, b bool) { f.Claimed = b })
	all = with(all, presences, func(f *facts, p lifecycle.Presence) { f.Bootstrap = p })
	all = with(all, presences, func(f *facts, p lifecycle.Presence) { f.Infrastructure = p })
	all = with(all, schedules(), func(f *facts, s facts) {
		f.Enabled, f.Readable, f.Wanted, f.Change = s.Enabled, s.Readable, s.Wanted, s.Change
	})
	return with(all, machines(), func(f *facts, m facts) {
		f.Machine, f.MachineReady, f.MachineFailed, f.Interrupted = m.Machine, m.MachineReady, m.MachineFailed, m.Interrupted
		f.Settling, f.SettledBy = m.Settling, m.SettledBy
		f.Deadline, f.Expedited, f.Node = m.Deadline, m.Expedited, m.Node
	})
}

// with yields each element of all with each of values.
func with[T any](all iter.Seq[lifecycle.Facts], values []T, set func(*lifecycle.Facts, T)) iter.Seq[lifecycle.Facts] {
	return func(yield func(lifecycle.Facts) bool) {
		for f := range all {
			for _, v := range values {
				if set(&f, v); !yield(f) {
					return
				}
			}
		}
	}
}

// schedules returns the states of the schedule and of the switch that turns it on.
func schedules() []lifecycle.Facts {
	all := []lifecycle.Facts{{}, {Readable: true}, {Enabled: true}}
	for _, wanted := range []bool{false, true} {
		for _, change := range []time.Time{{}, noon.Add(time.Minute), noon.Add(time.Hour)} {
			all = append(all, lifecycle.Facts{Enabled: true, Readable: true, Wanted: wanted, Change: change})
		}
	}
	return all
}

// machines returns all states of a Machine, and none.
func machines() []lifecycle.Facts {
	all := []lifecycle.Facts{{Machine: lifecycle.Absent}}
	for bits := range 8 {
		m := lifecycle.Facts{Machine: lifecycle.Present, MachineReady: bits&1 != 0, MachineFailed: bits&2 != 0, Interrupted: bits&4 != 0}
		all = append(all, m)
		m.Settling = true
		all = append(all, m)
		m.SettledBy = noon.Add(5 * time.Minute)
		all = append(all, m)
	}
	for _, deadline := range []time.Time{{}, noon.Add(-time.Minute), noon, noon.Add(10 * time.Minute)} {
		for _, node := range presences {
			m := lifecycle.Facts{Machine: lifecycle.Leaving, Deadline: deadline, Node: node}
			all = append(all, m)
			m.Expedited = true
			all = append(all, m)
		}
	}
	return all
}

func TestNothingIsCreatedWhileForbidden(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		forbidden := f.KillSwitch || f.Reclaim || !f.Enabled || f.Deleting || !f.Readable || !f.Wanted || f.Cluster != lifecycle.Present || f.Claimed
		if forbidden && d.Action == lifecycle.Ensure {
			t.Fatalf("Decide(%+v) = %+v", f, d)
		}
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		switch {
		case f.Deleting:
		case f.KillSwitch && d.Phase != lifecycle.Terminated,
			!f.KillSwitch && f.Reclaim && d.Phase != lifecycle.EmergencyRemove:
			t.Fatalf("Decide(%+v) = %+v", f, d)
		}
	}
}

func TestAMachineLeavesOnlyWithACause(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		starts := d.Action == lifecycle.Depart || d.Action == lifecycle.Remove
		lost := f.Infrastructure == lifecycle.Absent || f.Infrastructure == lifecycle.Leaving
		asked := f.Deleting || f.KillSwitch || f.Cluster == lifecycle.Leaving || f.Interrupted ||
			f.Enabled && f.Readable && (!f.Wanted || f.MachineFailed || lost)
		if f.Machine == lifecycle.Present && starts && !asked {
			t.Fatalf("Decide(%+v) = %+v", f, d)
		}
	}
}

func TestAClaimRemovesNoMachine(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		f.Claimed = false
		want := lifecycle.Decide(f)
		judged := f
		judged.Phase = lifecycle.Pending // A machine that returns to the schedule passes through Pending.
		if lifecycle.Decide(judged).Action == lifecycle.Ensure {
			want.Action = lifecycle.Hold
			if f.Machine == lifecycle.Absent {
				want = lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.HostClaimed, Recheck: want.Recheck}
			}
		}
		f.Claimed = true
		if got := lifecycle.Decide(f); got != want {
			t.Fatalf("Decide(%+v)\n= %+v, want\n  %+v", f, got, want)
		}
	}
}

func TestWhatIsUnknownChangesNothing(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		if f.Infrastructure != lifecycle.Unknown && f.Bootstrap != lifecycle.Unknown {
			continue
		}
		d := lifecycle.Decide(f)
		if d.Action == lifecycle.Ensure || d.Action == lifecycle.Release {
			t.Fatalf("created or released an unreadable object: Decide(%+v) = %+v", f, d)
		}
		known := f
		for _, p := range []*lifecycle.Presence{&known.Infrastructure, &known.Bootstrap} {
			if *p == lifecycle.Unknown {
				*p = lifecycle.Present
			}
		}
		if starts := d.Action == lifecycle.Depart && f.Machine == lifecycle.Present; starts && lifecycle.Decide(known).Action != lifecycle.Depart {
			t.Fatalf("departs because of an unreadable object: Decide(%+v) = %+v", f, d)
		}
	}
}

func TestANodeGoesAfterItsMachine(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		outlived := f.Machine == lifecycle.Leaving && f.Expedited && f.Infrastructure == lifecycle.Absent && f.Node == lifecycle.Present
		if d.Action == lifecycle.RemoveNode && !outlived {
			t.Fatalf("a Node goes that may be in use: Decide(%+v) = %+v", f, d)
		}
		if outlived && d.Action != lifecycle.RemoveNode && !d.Again {
			t.Fatalf("a Node outlives its machine: Decide(%+v) = %+v", f, d)
		}
	}
}

func TestTheBootstrapConfigGoesLast(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		nothing := f.Machine == lifecycle.Leaving || f.Machine == lifecycle.Absent && f.Infrastructure != lifecycle.Present &&
			(f.Infrastructure != lifecycle.Absent || f.Bootstrap != lifecycle.Present)
		if d.Action == lifecycle.Depart && nothing {
			t.Fatalf("departs with nothing to delete, so that nothing is reported: Decide(%+v) = %+v", f, d)
		}
	}
}

func TestGraceIsNeverCutShortWithoutCause(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		if d.Action == lifecycle.Expedite && f.Now.Before(f.Deadline) {
			t.Fatalf("expedited before the deadline: Decide(%+v) = %+v", f, d)
		}
		if d.Action == lifecycle.Remove && !f.KillSwitch && !f.Reclaim {
			t.Fatalf("removed without kill switch or owner: Decide(%+v) = %+v", f, d)
		}
	}
}

func TestRecheckIsTheFirstInstantThatMatters(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		if !f.Change.IsZero() && (d.Recheck.IsZero() || d.Recheck.After(f.Change)) {
			t.Fatalf("sleeps over the edge at %v: Decide(%+v) = %+v", f.Change, f, d)
		}
		if f.Machine == lifecycle.Leaving && !f.Expedited && d.Action == lifecycle.Hold && !f.KillSwitch && !f.Reclaim &&
			f.Now.Before(f.Deadline) && (d.Recheck.IsZero() || d.Recheck.After(f.Deadline)) {
			t.Fatalf("sleeps over the deadline at %v: Decide(%+v) = %+v", f.Deadline, f, d)
		}
	}
}

// apply returns the facts after an action is complete. A child that could not be read is then known to be
// absent.
func apply(f lifecycle.Facts, d lifecycle.Decision) lifecycle.Facts {
	for _, p := range []*lifecycle.Presence{&f.Infrastructure, &f.Bootstrap} {
		if *p == lifecycle.Unknown {
			*p = lifecycle.Absent
		}
	}
	f.Phase = d.Phase
	gone := func(p lifecycle.Presence) lifecycle.Presence {
		if p == lifecycle.Leaving || d.Action == lifecycle.Depart || d.Action == lifecycle.Remove || d.Action == lifecycle.Expedite {
			return lifecycle.Absent
		}
		return p
	}
	machine := f.Machine
	f.Machine = gone(machine)
	if machine == lifecycle.Absent || machine == lifecycle.Leaving || f.Machine == lifecycle.Absent {
		f.Infrastructure, f.Bootstrap = gone(f.Infrastructure), gone(f.Bootstrap)
	}
	if machine != lifecycle.Absent && f.Machine == lifecycle.Absent {
		f.Infrastructure, f.Bootstrap = lifecycle.Absent, lifecycle.Absent // Cluster API deletes both before the Machine.
	}
	if f.Bootstrap == lifecycle.Leaving {
		f.Bootstrap = lifecycle.Absent
	}
	f.Settling, f.SettledBy = false, time.Time{}
	if f.Machine == lifecycle.Absent {
		f.Deadline, f.Expedited, f.Interrupted, f.MachineReady, f.MachineFailed = time.Time{}, false, false, false, false
	}
	if d.Action == lifecycle.Ensure {
		f.Bootstrap, f.Infrastructure, f.Machine = lifecycle.Present, lifecycle.Present, lifecycle.Present
	}
	return f
}

func TestEveryPhaseHasAnExitAndEveryStateSettles(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		if wrong := settles(f); wrong != "" {
			t.Fatal(wrong)
		}
	}
}

// settles repeats decisions and their actions until the facts are stable. It returns what is wrong with the
// last state, empty if nothing is.
func settles(first lifecycle.Facts) string {
	f := first
	var last lifecycle.Decision
	for range 12 {
		d := lifecycle.Decide(f)
		if d.Action == lifecycle.Release {
			return ""
		}
		next := apply(f, d)
		if next == f && d == last {
			if want := settled(f); !slices.Contains(want, d.Phase) {
				return fmt.Sprintf("%+v\nsettles in %s, want %v: %+v", first, d.Phase, want, f)
			}
			return ""
		}
		f, last = next, d
	}
	return fmt.Sprintf("%+v\ndoes not settle: %+v, last decision %+v", first, f, last)
}

// settled returns the phases in which a machine may be after all actions are complete.
func settled(f lifecycle.Facts) []lifecycle.Phase {
	switch {
	case f.KillSwitch:
		return []lifecycle.Phase{lifecycle.Terminated}
	case f.Reclaim:
		return []lifecycle.Phase{lifecycle.EmergencyRemove}
	case f.Cluster == lifecycle.Leaving:
		return []lifecycle.Phase{lifecycle.Inactive}
	case !f.Enabled:
		return []lifecycle.Phase{lifecycle.Disabled}
	case !f.Readable: // an unreadable schedule makes no change
		return []lifecycle.Phase{lifecycle.Pending, lifecycle.Active, lifecycle.ShuttingDown, lifecycle.Inactive}
	case !f.Wanted:
		return []lifecycle.Phase{lifecycle.Inactive}
	case (f.Cluster == lifecycle.Absent || f.Claimed) && f.Machine != lifecycle.Present:
		return []lifecycle.Phase{lifecycle.Pending}
	default:
		return []lifecycle.Phase{lifecycle.Active}
	}
}

// begun returns the facts after an action was accepted but before it has further effects: deletions are in
// progress, and no status has changed.
func begun(f lifecycle.Facts, d lifecycle.Decision) lifecycle.Facts {
	leaves := func(p *lifecycle.Presence) {
		if *p == lifecycle.Present {
			*p = lifecycle.Leaving
		}
	}
	last := &f.Infrastructure // the object that is deleted if there is no Machine
	if f.Infrastructure == lifecycle.Absent {
		last = &f.Bootstrap
	}
	switch d.Action {
	case lifecycle.Ensure:
		for _, p := range []*lifecycle.Presence{&f.Bootstrap, &f.Infrastructure, &f.Machine} {
			if *p == lifecycle.Absent {
				*p = lifecycle.Present
			}
		}
	case lifecycle.Depart, lifecycle.Remove, lifecycle.Expedite:
		removes := d.Action != lifecycle.Depart
		switch f.Machine {
		case lifecycle.Present:
			f.Deadline, f.Expedited, f.Settling, f.SettledBy = noon.Add(time.Minute), removes, false, time.Time{}
		case lifecycle.Leaving:
			f.Expedited = f.Expedited || removes
		default:
			leaves(last)
			return f
		}
		if leaves(&f.Machine); removes {
			leaves(&f.Infrastructure)
		}
	case lifecycle.RemoveNode:
		leaves(&f.Node)
	default:
	}
	return f
}

// onceMore has the actions that may follow an action before it has effects: the same action if it is
// idempotent, or none. A kill switch always continues to remove.
var onceMore = map[lifecycle.Action][]lifecycle.Action{
	lifecycle.Hold:       {lifecycle.Hold},
	lifecycle.Release:    {lifecycle.Release},
	lifecycle.Ensure:     {lifecycle.Ensure, lifecycle.Hold},
	lifecycle.Depart:     {lifecycle.Depart, lifecycle.Hold},
	lifecycle.Remove:     {lifecycle.Remove, lifecycle.Hold, lifecycle.RemoveNode},
	lifecycle.Expedite:   {lifecycle.Hold, lifecycle.RemoveNode},
	lifecycle.RemoveNode: {lifecycle.Hold, lifecycle.Remove},
}

// TestActingTwiceIsActingOnce stops the manager between an action and its report, or reconciles again before
// the action has effects. The next action must neither undo nor extend the first.
func TestActingTwiceIsActingOnce(t *testing.T) {
	t.Parallel()
	for f := range everything() {
		d := lifecycle.Decide(f)
		unreported := begun(f, d)
		reported := unreported
		if !d.Again { // otherwise another decision follows immediately
			reported.Phase = d.Phase
		}
		for _, next := range []lifecycle.Facts{unreported, reported} {
			if again := lifecycle.Decide(next); !slices.Contains(onceMore[d.Action], again.Action) {
				t.Fatalf("%s is followed by %s\nDecide(%+v) = %+v\nDecide(%+v) = %+v", d.Action, again.Action, f, d, next, again)
			}
		}
	}
}

// TestADepartureNeedsItsAdmission compares each decision with the one without an admission.
func TestADepartureNeedsItsAdmission(t *testing.T) {
	for f := range everything() {
		admitted := lifecycle.Decide(f)
		f.Exempt = false
		waits := lifecycle.Decide(f)
		switch {
		case waits.Action == lifecycle.Depart && f.Machine == lifecycle.Present,
			waits.Action == lifecycle.RequestDeparture && admitted.Action != lifecycle.Depart && !admitted.Again,
			waits.Action != lifecycle.RequestDeparture && waits != admitted:
			t.Fatalf("%+v: %+v without an admission, else %+v", f, waits, admitted)
		}
	}
}

// TestASuspectClockTakesAndGivesNoMachine compares each decision with the one by a suspect clock.
func TestASuspectClockTakesAndGivesNoMachine(t *testing.T) {
	for f := range everything() {
		trusted := lifecycle.Decide(f)
		f.ClockSuspect = true
		got := lifecycle.Decide(f)
		held := trusted.Action == lifecycle.Ensure && f.Machine == lifecycle.Absent || trusted.Action == lifecycle.Expedite
		if held != got.Suspended || held && got.Action != lifecycle.Hold || !held && got != trusted {
			t.Fatalf("%+v: %+v by a suspect clock, else %+v", f, got, trusted)
		}
	}
}
