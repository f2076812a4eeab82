// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

var (
	phases    = []lifecycle.Phase{"", lifecycle.Pending, lifecycle.Active, lifecycle.ShuttingDown, lifecycle.Inactive, lifecycle.Disabled, lifecycle.Terminated, lifecycle.EmergencyRemove, lifecycle.Error}
	presences = []lifecycle.Presence{lifecycle.Absent, lifecycle.Present, lifecycle.Leaving, lifecycle.Unknown}
	clusters  = []lifecycle.ClusterState{lifecycle.ClusterMissing, lifecycle.ClusterPresent, lifecycle.ClusterLeaving}
)

// facts draws any facts that can be observed.
func facts(t *rapid.T) lifecycle.Facts {
	b := func(label string) bool { return rapid.Bool().Draw(t, label) }
	p := func(label string) lifecycle.Presence { return rapid.SampledFrom(presences).Draw(t, label) }
	f := lifecycle.Facts{
		Now: noon, Phase: rapid.SampledFrom(phases).Draw(t, "phase"),
		Deleting: b("deleting"), KillSwitch: b("killSwitch"), Reclaim: b("reclaim"), Enabled: b("enabled"),
		Readable: b("readable"), Cluster: rapid.SampledFrom(clusters).Draw(t, "cluster"), Claimed: b("claimed"),
		Bootstrap: p("bootstrap"), Infrastructure: p("infrastructure"),
		Machine: rapid.SampledFrom(presences[:3]).Draw(t, "machine"),
	}
	if f.Enabled && f.Readable {
		f.Wanted = b("wanted")
		if b("changes") {
			f.Change = noon.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "change")) * time.Minute)
		}
	}
	switch f.Machine {
	case lifecycle.Present:
		f.MachineReady, f.MachineFailed, f.Interrupted = b("ready"), b("failed"), b("interrupted")
		if f.Settling = b("settling"); f.Settling {
			f.SettledBy = noon.Add(time.Minute)
		}
	case lifecycle.Leaving:
		f.Deadline = noon.Add(time.Duration(rapid.IntRange(-10, 10).Draw(t, "deadline")) * time.Minute)
		f.Expedited, f.Node = b("expedited"), p("node")
	case lifecycle.Absent, lifecycle.Unknown:
	}
	return f
}

func TestNothingIsMadeWhileItMustNotBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		forbidden := f.KillSwitch || f.Reclaim || !f.Enabled || f.Deleting || !f.Readable || !f.Wanted || f.Cluster != lifecycle.ClusterPresent || f.Claimed
		if forbidden && d.Action == lifecycle.Ensure {
			t.Fatalf("Decide(%+v) = %+v", f, d)
		}
	})
}

func TestPrecedence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		switch {
		case f.Deleting:
		case f.KillSwitch && d.Phase != lifecycle.Terminated,
			!f.KillSwitch && f.Reclaim && d.Phase != lifecycle.EmergencyRemove:
			t.Fatalf("Decide(%+v) = %+v", f, d)
		}
	})
}

func TestAMachineStaysUnlessSomebodyWantsItGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		starts := d.Action == lifecycle.Depart || d.Action == lifecycle.Remove
		lost := f.Infrastructure == lifecycle.Absent || f.Infrastructure == lifecycle.Leaving
		asked := f.Deleting || f.KillSwitch || f.Cluster == lifecycle.ClusterLeaving || f.Interrupted ||
			f.Enabled && f.Readable && (!f.Wanted || f.MachineFailed || lost)
		if f.Machine == lifecycle.Present && starts && !asked {
			t.Fatalf("Decide(%+v) = %+v", f, d)
		}
	})
}

func TestAClaimOfAnotherTakesNothingAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		f.Claimed = false
		free := lifecycle.Decide(f)
		f.Claimed = true
		claimed := lifecycle.Decide(f)
		if free.Action == lifecycle.Ensure {
			free.Action = lifecycle.Hold
			if f.Machine == lifecycle.Absent {
				free.Phase, free.Reason = lifecycle.Pending, lifecycle.HostClaimed
			}
		}
		if claimed != free {
			t.Fatalf("%+v:\nclaimed %+v\nfree    %+v", f, claimed, free)
		}
	})
}

func TestWhatIsUnknownChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		if f.Infrastructure != lifecycle.Unknown && f.Bootstrap != lifecycle.Unknown {
			return
		}
		d := lifecycle.Decide(f)
		if d.Action == lifecycle.Ensure || d.Action == lifecycle.Release {
			t.Fatalf("made, or let go of, what nobody can see: Decide(%+v) = %+v", f, d)
		}
		known := f
		for _, p := range []*lifecycle.Presence{&known.Infrastructure, &known.Bootstrap} {
			if *p == lifecycle.Unknown {
				*p = lifecycle.Present
			}
		}
		if starts := d.Action == lifecycle.Depart && f.Machine == lifecycle.Present; starts && lifecycle.Decide(known).Action != lifecycle.Depart {
			t.Fatalf("departs because of what nobody can see: Decide(%+v) = %+v", f, d)
		}
	})
}

func TestANodeGoesAfterItsMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		husk := f.Machine == lifecycle.Leaving && f.Expedited && f.Infrastructure == lifecycle.Absent && f.Node == lifecycle.Present
		if d.Action == lifecycle.RemoveNode && !husk {
			t.Fatalf("a Node goes that may be in use: Decide(%+v) = %+v", f, d)
		}
		if husk && d.Action != lifecycle.RemoveNode && !d.Again {
			t.Fatalf("a Node outlives its machine: Decide(%+v) = %+v", f, d)
		}
	})
}

func TestTheBootstrapConfigGoesLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		nothing := f.Machine == lifecycle.Leaving || f.Machine == lifecycle.Absent && f.Infrastructure != lifecycle.Present &&
			(f.Infrastructure != lifecycle.Absent || f.Bootstrap != lifecycle.Present)
		if d.Action == lifecycle.Depart && nothing {
			t.Fatalf("departs with nothing to delete, so that nothing is reported: Decide(%+v) = %+v", f, d)
		}
	})
}

func TestGraceIsNeverCutShortWithoutCause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		if d.Action == lifecycle.Expedite && f.Now.Before(f.Deadline) {
			t.Fatalf("expedited before the deadline: Decide(%+v) = %+v", f, d)
		}
		if d.Action == lifecycle.Remove && !f.KillSwitch && !f.Reclaim {
			t.Fatalf("removed without kill switch or owner: Decide(%+v) = %+v", f, d)
		}
	})
}

func TestRecheckIsTheFirstInstantThatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		d := lifecycle.Decide(f)
		if !f.Change.IsZero() && (d.Recheck.IsZero() || d.Recheck.After(f.Change)) {
			t.Fatalf("sleeps over the edge at %v: Decide(%+v) = %+v", f.Change, f, d)
		}
		if f.Machine == lifecycle.Leaving && !f.Expedited && d.Action == lifecycle.Hold && !f.KillSwitch && !f.Reclaim &&
			f.Now.Before(f.Deadline) && (d.Recheck.IsZero() || d.Recheck.After(f.Deadline)) {
			t.Fatalf("sleeps over the deadline at %v: Decide(%+v) = %+v", f.Deadline, f, d)
		}
	})
}

// apply is the world after an action: everything that was asked for has happened, and
// what could not be seen can be: there is none.
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
		f.Infrastructure, f.Bootstrap = lifecycle.Absent, lifecycle.Absent // Cluster API deletes both first
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
	rapid.Check(t, func(t *rapid.T) {
		f := facts(t)
		var last lifecycle.Decision
		for range 12 {
			d := lifecycle.Decide(f)
			if d.Action == lifecycle.Release {
				return
			}
			next := apply(f, d)
			if next == f && d == last {
				if want := settled(f); !slices.Contains(want, d.Phase) {
					t.Fatalf("settled in %s, want %v: %+v", d.Phase, want, f)
				}
				return
			}
			f, last = next, d
		}
		t.Fatalf("does not settle: %+v, last decision %+v", f, last)
	})
}

// settled is where a machine of which everything asked for has happened may be.
func settled(f lifecycle.Facts) []lifecycle.Phase {
	switch {
	case f.KillSwitch:
		return []lifecycle.Phase{lifecycle.Terminated}
	case f.Reclaim:
		return []lifecycle.Phase{lifecycle.EmergencyRemove}
	case f.Cluster == lifecycle.ClusterLeaving:
		return []lifecycle.Phase{lifecycle.Inactive}
	case !f.Enabled:
		return []lifecycle.Phase{lifecycle.Disabled}
	case !f.Readable: // everything stays as it is
		return []lifecycle.Phase{lifecycle.Pending, lifecycle.Active, lifecycle.ShuttingDown, lifecycle.Inactive}
	case !f.Wanted:
		return []lifecycle.Phase{lifecycle.Inactive}
	case f.Cluster == lifecycle.ClusterMissing && f.Machine != lifecycle.Present:
		return []lifecycle.Phase{lifecycle.Pending}
	default:
		return []lifecycle.Phase{lifecycle.Active}
	}
}

// begun is the world once an action was accepted, and nothing more has come of it: what
// goes is on its way, and nobody has reported anything.
func begun(f lifecycle.Facts, d lifecycle.Decision) lifecycle.Facts {
	leaves := func(p *lifecycle.Presence) {
		if *p == lifecycle.Present {
			*p = lifecycle.Leaving
		}
	}
	last := &f.Infrastructure // What goes where there is no Machine to take it along.
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

// onceMore is what may follow an action while nothing has come of it: the same again where
// that changes nothing, or nothing. A kill switch goes on removing, whatever else is done.
var onceMore = map[lifecycle.Action][]lifecycle.Action{
	lifecycle.Hold:       {lifecycle.Hold},
	lifecycle.Release:    {lifecycle.Release},
	lifecycle.Ensure:     {lifecycle.Ensure, lifecycle.Hold},
	lifecycle.Depart:     {lifecycle.Depart, lifecycle.Hold},
	lifecycle.Remove:     {lifecycle.Remove, lifecycle.Hold, lifecycle.RemoveNode},
	lifecycle.Expedite:   {lifecycle.Hold, lifecycle.RemoveNode},
	lifecycle.RemoveNode: {lifecycle.Hold, lifecycle.Remove},
}

// TestActingTwiceIsActingOnce has the manager stop between an action and its report, or
// look again before anything has come of it: it neither undoes what it did nor does more.
func TestActingTwiceIsActingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 20 { // Few are asked to run, and to do something.
			f := facts(t)
			if rapid.Bool().Draw(t, "inItsWindow") {
				f.Deleting, f.KillSwitch, f.Reclaim, f.Enabled, f.Readable, f.Wanted = false, false, false, true, true, true
				f.Cluster = lifecycle.ClusterPresent
			}
			d := lifecycle.Decide(f)
			unreported := begun(f, d)
			twice(t, "its report was lost", f, d, unreported)
			if !d.Again { // Else the next decision follows at once, and is another.
				unreported.Phase = d.Phase
				twice(t, "it was reported", f, d, unreported)
			}
		}
	})
}

func twice(t *rapid.T, what string, f lifecycle.Facts, d lifecycle.Decision, next lifecycle.Facts) {
	if again := lifecycle.Decide(next); !slices.Contains(onceMore[d.Action], again.Action) {
		t.Fatalf("%s is followed by %s after %s\nDecide(%+v) = %+v\nDecide(%+v) = %+v", d.Action, again.Action, what, f, d, next, again)
	}
}
