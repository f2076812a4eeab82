// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// drawCandidates draws candidates of either lane. Their names show when they were drawn.
func drawCandidates(from, to int) *rapid.Generator[[]departurecap.Candidate] {
	ages := rapid.SampledFrom([]time.Duration{0, time.Second, 9 * time.Minute, 10 * time.Minute, time.Hour})
	return rapid.Custom(func(t *rapid.T) []departurecap.Candidate {
		list := make([]departurecap.Candidate, rapid.IntRange(from, to).Draw(t, "candidates"))
		for i := range list {
			c := unscheduled(fmt.Sprintf("m%03d", i), priority(rapid.Int32Range(0, 3).Draw(t, "priority")), since(ages.Draw(t, "since")))
			if rapid.Bool().Draw(t, "scheduled") {
				c.Lane, c.End = departurecap.Scheduled, noon.Add(-ages.Draw(t, "ended"))
			}
			list[i] = c
		}
		return list
	})
}

func drawFleet() *rapid.Generator[departurecap.Fleet] {
	return rapid.Custom(func(t *rapid.T) departurecap.Fleet {
		f := departurecap.Fleet{Now: noon, Counts: departurecap.Counts{Departed: rapid.IntRange(0, 9).Draw(t, "departed")}, Candidates: drawCandidates(0, 60).Draw(t, "fleet")}
		f.Active = len(f.Candidates) + rapid.IntRange(0, 60).Draw(t, "others")
		for range rapid.IntRange(0, 5).Draw(t, "starts") {
			f.Started = append(f.Started, noon.Add(-time.Duration(rapid.IntRange(-5, 15).Draw(t, "ago"))*time.Second))
		}
		return f
	})
}

func drawHolds() *rapid.Generator[[]departurecap.Hold] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) departurecap.Hold {
		return departurecap.Hold{
			Reason:      rapid.SampledFrom([]departurecap.Reason{v1alpha1.DeparturesHeldReason, v1alpha1.ClockSuspectReason, v1alpha1.WarmUpReason, v1alpha1.WipeQuarantineReason}).Draw(t, "reason"),
			Unscheduled: rapid.Bool().Draw(t, "unscheduled"),
		}
	}), 0, 3)
}

// TestTheRailsDecideNothing is P10: rails only postpone candidates.
func TestTheRailsDecideNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet().Draw(t, "fleet")
		free := departurecap.Decide(f, 0)
		if len(free.Admitted) != len(f.Candidates) || !free.Next.IsZero() {
			t.Fatalf("nothing limits them, and of %d start %d", len(f.Candidates), len(free.Admitted))
		}
		f.Holds = drawHolds().Draw(t, "holds")
		checkWhole(t, f.Candidates, departurecap.Decide(f, drawLimits().Draw(t, "limits")))
	})
}

// TestOrderOfFactsDoesNotMatter is a part of P7.
func TestOrderOfFactsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet().Draw(t, "fleet")
		f.Holds = drawHolds().Draw(t, "holds")
		limits := drawLimits().Draw(t, "limits")
		want := departurecap.Decide(f, limits)
		f.Candidates = rapid.Permutation(f.Candidates).Draw(t, "candidates")
		f.Started = rapid.Permutation(f.Started).Draw(t, "started")
		if diff := gocmp.Diff(want, departurecap.Decide(f, limits)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestAllCandidatesStart is P3: without new candidates all start, as soon as a planner that runs every 10 s would
// admit them.
func TestAllCandidatesStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{limits: oneInTwenty}
		c.Now, c.Candidates = noon, drawCandidates(1, 150).Draw(t, "fleet")
		all := len(c.Candidates)
		c.Active = all
		c.run()
		if c.Active != 0 || len(c.starts) != all {
			t.Fatalf("of %d machines %d start, %d stay", all, len(c.starts), c.Active)
		}
		if got, want := len(c.batches()), len(cycles(all)); got > want {
			t.Fatalf("%d machines take %d batches, want at most %d", all, got, want)
		}
	})
}

// An arrival is an instant at which a machine becomes a candidate.
type arrival struct {
	at time.Time
	departurecap.Candidate
}

func drawArrivals(lanes ...departurecap.Lane) *rapid.Generator[[]arrival] {
	return rapid.Custom(func(t *rapid.T) []arrival {
		list := make([]arrival, rapid.IntRange(1, 40).Draw(t, "arrivals"))
		for i := range list {
			at := after(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms")) * time.Millisecond)
			list[i] = arrival{at, departurecap.Candidate{
				Name: fmt.Sprintf("m%03d", i), Lane: rapid.SampledFrom(lanes).Draw(t, "lane"), Priority: rapid.Int32Range(0, 3).Draw(t, "priority"), Since: at,
			}}
			if list[i].Lane == departurecap.Scheduled {
				list[i].End = at
			}
		}
		slices.SortStableFunc(list, func(a, b arrival) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Name, b.Name)) })
		return list
	})
}

// play plans at every arrival, at the instants that the plans name, and at the instants others.
func play(c *cluster, arrivals []arrival, others []time.Time) {
	for next := noon; ; {
		at := next
		for _, o := range others {
			at = sooner(at, o, c.Now)
		}
		for _, a := range arrivals {
			at = sooner(at, a.at, c.Now)
		}
		if at.IsZero() {
			return
		}
		for _, a := range arrivals {
			if a.at.After(c.Now) && !a.at.After(at) {
				c.Candidates = append(c.Candidates, a.Candidate)
			}
		}
		next = c.wake(at).Next
	}
}

// sooner returns o if it is before at and after the last run.
func sooner(at, o, last time.Time) time.Time {
	if o.After(last) && (at.IsZero() || o.Before(at)) {
		return o
	}
	return at
}

func drawInstants() *rapid.Generator[[]time.Time] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Time {
		return after(time.Duration(rapid.IntRange(0, 300_000).Draw(t, "ms")) * time.Millisecond)
	}), 0, 100)
}

// TestLooksOfOthersChangeNothing is P5 and P6: additional planner runs, and their number, do not change the
// starts.
func TestLooksOfOthersChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arrivals := drawArrivals(departurecap.Scheduled, departurecap.Unscheduled).Draw(t, "arrivals")
		members := len(arrivals) + rapid.IntRange(0, 60).Draw(t, "others")
		alone, among := &cluster{limits: oneInTwenty}, &cluster{limits: oneInTwenty}
		alone.Active, among.Active = members, members
		play(alone, arrivals, nil)
		play(among, arrivals, drawInstants().Draw(t, "instants"))
		if diff := gocmp.Diff(alone.starts, among.starts); diff != "" {
			t.Fatalf("-alone, +among others:\n%s", diff)
		}
	})
}

// TestOrderWithinAWindowDoesNotMatter is P7: the order of arrivals while the limit is used up does not matter.
func TestOrderWithinAWindowDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arrivals := drawArrivals(departurecap.Scheduled, departurecap.Unscheduled).Draw(t, "arrivals")
		for i := range arrivals {
			arrivals[i].at, arrivals[i].Since = after(time.Duration(i+1)*time.Millisecond), noon
			if arrivals[i].Lane == departurecap.Scheduled {
				arrivals[i].End = noon
			}
		}
		run := func(arrivals []arrival) []start {
			c := &cluster{limits: oneInTwenty}
			c.Active, c.Started = 2*len(arrivals), slices.Repeat([]time.Time{noon}, len(arrivals)) // Urgent departures have used up the limit.
			play(c, arrivals, nil)
			return c.starts
		}
		want := run(arrivals)
		other := rapid.Permutation(arrivals).Draw(t, "other order")
		for i := range other {
			other[i].at = after(time.Duration(i+1) * time.Millisecond)
		}
		if diff := gocmp.Diff(want, run(other)); diff != "" || len(want) != len(arrivals) {
			t.Fatalf("%d of %d start, and in another order:\n%s", len(want), len(arrivals), diff)
		}
	})
}

// TestALowerLimitIsNeverFaster is P20, for candidates without a deadline.
func TestALowerLimitIsNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arrivals := drawArrivals(departurecap.Unscheduled).Draw(t, "arrivals")
		some := rapid.Map(rapid.Int64Range(1, 1_000_000), func(n int64) departurecap.Fraction { return departurecap.Fraction(n) })
		low, high := some.Draw(t, "low"), some.Draw(t, "high")
		low, high = min(low, high), max(low, high)
		if rapid.Bool().Draw(t, "no limit") {
			high = 0
		}
		members, instants := len(arrivals)+rapid.IntRange(0, 60).Draw(t, "others"), drawInstants().Draw(t, "instants")
		slow, fast := &cluster{limits: low}, &cluster{limits: high}
		slow.Active, fast.Active = members, members
		play(slow, arrivals, instants)
		play(fast, arrivals, instants)
		for i, s := range slow.starts {
			if fast.starts[i].At.After(s.At) {
				t.Fatalf("start %d at %v with %s, at %v with %s", i, s.At, low, fast.starts[i].At, high)
			}
		}
	})
}
