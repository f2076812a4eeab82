// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

const never time.Duration = -1

// outcome is a readable form of a plan: "a" starts, "a BlastRadiusCap" waits. Next counts from noon.
type outcome struct {
	Admitted, Deferred, Held []string
	Members                  int
	Next                     time.Duration
}

func outcomeOf(p departurecap.Plan) outcome {
	o := outcome{Members: p.Members, Next: never}
	for _, a := range p.Admitted {
		o.Admitted = append(o.Admitted, a.Name)
	}
	for _, w := range p.Deferred {
		o.Deferred = append(o.Deferred, w.Name+" "+string(w.Reason))
	}
	for _, w := range p.Held {
		o.Held = append(o.Held, w.Name+" "+string(w.Reason))
	}
	if !p.Next.IsZero() {
		o.Next = p.Next.Sub(noon)
	}
	return o
}

// unscheduled and scheduled return a candidate since noon.
func unscheduled(name string, change ...func(*departurecap.Candidate)) departurecap.Candidate {
	c := departurecap.Candidate{Name: name, Lane: departurecap.Unscheduled, Priority: 50, Since: noon}
	for _, f := range change {
		f(&c)
	}
	return c
}

func scheduled(name string, change ...func(*departurecap.Candidate)) departurecap.Candidate {
	c := unscheduled(name, func(c *departurecap.Candidate) { c.Lane, c.End = departurecap.Scheduled, noon })
	for _, f := range change {
		f(&c)
	}
	return c
}

func priority(n int32) func(*departurecap.Candidate) {
	return func(c *departurecap.Candidate) { c.Priority = n }
}

func ended(ago time.Duration) func(*departurecap.Candidate) {
	return func(c *departurecap.Candidate) { c.End = noon.Add(-ago) }
}

func since(ago time.Duration) func(*departurecap.Candidate) {
	return func(c *departurecap.Candidate) { c.Since = noon.Add(-ago) }
}

// ago returns instants before noon.
func ago(ages ...time.Duration) []time.Time {
	var times []time.Time
	for _, age := range ages {
		times = append(times, noon.Add(-age))
	}
	return times
}

func TestDecide(t *testing.T) {
	const s, m = time.Second, time.Minute
	type list = []departurecap.Candidate
	a, b, c := unscheduled("a"), unscheduled("b"), unscheduled("c")
	cases := map[string]struct {
		reason string
		fleet  departurecap.Fleet
		limits departurecap.Fraction
		want   outcome
	}{
		"NoCandidates": {
			reason: "A settled Cluster needs no other run.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 40, Started: ago(5 * s)}}, limits: oneInTwenty,
			want: outcome{Members: 41, Next: never},
		},
		"OneLeavesAtOnce": {
			reason: "Case 13: the only candidate starts at once.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 1}, Candidates: list{scheduled("a", ended(0))}}, limits: oneInTwenty,
			want: outcome{Admitted: []string{"a"}, Members: 1, Next: never},
		},
		"NoLimit": {
			reason: "Case 3: without a limit all leave.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 40, Started: ago(s, s, s)}, Candidates: list{a, b, scheduled("c", ended(20*m))}},
			want:   outcome{Admitted: []string{"c", "a", "b"}, Members: 43, Next: never},
		},
		"FirstOfTheOrder": {
			reason: "Case 10: of 40 two start, the others when these two do not count any more.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 40}, Candidates: list{c, b, a}}, limits: oneInTwenty,
			want: outcome{Admitted: []string{"a", "b"}, Deferred: []string{"c BlastRadiusCap"}, Members: 40, Next: 10 * s},
		},
		"OneLessThanForty": {
			reason: "Case 10: of 39 one.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 39}, Candidates: list{a, b}}, limits: oneInTwenty,
			want: outcome{Admitted: []string{"a"}, Deferred: []string{"b BlastRadiusCap"}, Members: 39, Next: 10 * s},
		},
		"JoinsDoNotWait": {
			reason: "Case 20: machines that come raise the limit.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 100}, Candidates: list{a, b, c}}, limits: oneInTwenty,
			want: outcome{Admitted: []string{"a", "b", "c"}, Members: 100, Next: never},
		},
		"WithinTheWindow": {
			reason: "Case 7: nine seconds later none is added: looking again buys nothing.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 38, Started: ago(9*s, 9*s)}, Candidates: list{a}}, limits: oneInTwenty,
			want: outcome{Deferred: []string{"a BlastRadiusCap"}, Members: 40, Next: s},
		},
		"TheWindowIsOver": {
			reason: "Case 10: ten seconds later those two do not count; of 38 one starts.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 38, Started: ago(10*s, 10*s)}, Candidates: list{a, b}}, limits: oneInTwenty,
			want: outcome{Admitted: []string{"a"}, Deferred: []string{"b BlastRadiusCap"}, Members: 38, Next: 10 * s},
		},
		"LowerLimitWhenTheFirstLeavesTheWindow": {
			reason: "When the older start is forgotten, the limit of 39 is one, and the younger has used it.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 38, Started: ago(8*s, 3*s)}, Candidates: list{a}}, limits: oneInTwenty,
			want: outcome{Deferred: []string{"a BlastRadiusCap"}, Members: 40, Next: 7 * s},
		},
		"LowerLimitWithThoseWhoStart": {
			reason: "The same for one that starts now: when the older is forgotten, 38 are active.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 39, Started: ago(5 * s)}, Candidates: list{a, b}}, limits: oneInTwenty,
			want: outcome{Admitted: []string{"a"}, Deferred: []string{"b BlastRadiusCap"}, Members: 40, Next: 10 * s},
		},
		"EmergenciesUseTheLimit": {
			reason: "Case 26: three owners came back, so no other machine starts.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 37, Started: ago(s, 2*s, 3*s)}, Candidates: list{scheduled("a")}}, limits: oneInTwenty,
			want: outcome{Deferred: []string{"a BlastRadiusCap"}, Members: 40, Next: 9 * s},
		},
		"ClockWasSetBack": {
			reason: "Case 52: what started in the future counts as of now, and does not count for ever.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 38, Started: ago(-3*time.Hour, -3*time.Hour)}, Candidates: list{a}}, limits: oneInTwenty,
			want: outcome{Deferred: []string{"a BlastRadiusCap"}, Members: 40, Next: 10 * s},
		},
		"LowestPriorityFirst": {
			reason: "Case 11: the least important machine leaves first.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 5}, Candidates: list{unscheduled("a", priority(90)), unscheduled("b", priority(10)), unscheduled("c", priority(50))}},
			limits: oneInTwenty,
			want:   outcome{Admitted: []string{"b"}, Deferred: []string{"c BlastRadiusCap", "a BlastRadiusCap"}, Members: 5, Next: 10 * s},
		},
		"EarliestEndThenName": {
			reason: "Case 12: at equal priority, the earliest window end first; machines without one last.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 5}, Candidates: list{a, scheduled("d", ended(m)), scheduled("c", ended(m)), scheduled("b", ended(2*m))}},
			limits: fraction("0.4"),
			want: outcome{
				Admitted: []string{"b", "c"}, Deferred: []string{"d BlastRadiusCap", "a BlastRadiusCap"}, Members: 5,
				Next: 10 * s,
			},
		},
		"WaitedTooLong": {
			reason: "Who has waited for more than ten minutes comes first, the longest first, whatever its priority.",
			fleet: departurecap.Fleet{Counts: departurecap.Counts{Active: 5}, Candidates: list{
				unscheduled("a", priority(0)), unscheduled("b", priority(98), since(10*m+s)), unscheduled("c", priority(1), since(10*m)),
				unscheduled("d", priority(99), since(11*m)), unscheduled("e", priority(2), since(-time.Hour)),
				{Name: "f", Priority: 3},
			}},
			limits: fraction("0.2"),
			want: outcome{
				Admitted: []string{"d"}, Members: 5, Next: 10 * s,
				Deferred: []string{"b BlastRadiusCap", "a BlastRadiusCap", "c BlastRadiusCap", "e BlastRadiusCap", "f BlastRadiusCap"},
			},
		},
		"LateByTenMinutes": {
			reason: "However late a machine is, it does not start beyond the limit.",
			fleet: departurecap.Fleet{Counts: departurecap.Counts{Active: 20}, Candidates: list{
				scheduled("a", ended(time.Hour)), scheduled("b", ended(10*m)), unscheduled("c", ended(time.Hour), since(time.Hour), priority(99)),
			}},
			limits: oneInTwenty,
			want: outcome{
				Admitted: []string{"c"}, Deferred: []string{"a BlastRadiusCap", "b BlastRadiusCap"}, Members: 20, Next: 10 * s,
			},
		},
		"MachinesThatNeverRan": {
			reason: "900 of 1,000 machines never had a Node: 5 of the others start, and not 50.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 1000, NeverRan: 900, Started: ago(s, s, s, s)}, Candidates: list{a, b}},
			limits: oneInTwenty,
			want:   outcome{Admitted: []string{"a"}, Deferred: []string{"b BlastRadiusCap"}, Members: 104, Next: 9 * s},
		},
		"AnAnnouncedEndOfMachinesThatNeverRan": {
			reason: "An announced end has all machines leave in time, those that never ran as well.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 40, NeverRan: 40}, Candidates: list{scheduled("a"), scheduled("b"), scheduled("c")}},
			limits: oneInTwenty,
			want:   outcome{Admitted: []string{"a", "b"}, Deferred: []string{"c BlastRadiusCap"}, Members: 0, Next: 10 * s},
		},
		"ASharedWindowEnd": {
			reason: "The machines that left within ten minutes count for announced ends: two of forty start, and one of the twenty that are left would.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 20, Departed: 20}, Candidates: list{scheduled("a"), scheduled("b"), scheduled("c")}},
			limits: oneInTwenty,
			want:   outcome{Admitted: []string{"a", "b"}, Deferred: []string{"c BlastRadiusCap"}, Members: 20, Next: 10 * s},
		},
		"AnEditDuringASharedWindowEnd": {
			reason: "They do not count for what was not announced: the two that start leave no room.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 20, Departed: 20}, Candidates: list{scheduled("a", priority(1)), scheduled("b", priority(1)), unscheduled("c")}},
			limits: oneInTwenty,
			want:   outcome{Admitted: []string{"a", "b"}, Deferred: []string{"c BlastRadiusCap"}, Members: 20, Next: 10 * s},
		},
		"Held": {
			reason: "The first hold counts, also for candidates that have waited long.",
			fleet: departurecap.Fleet{
				Counts: departurecap.Counts{Active: 40}, Candidates: list{scheduled("a", ended(time.Hour)), b},
				Holds: []departurecap.Hold{{Reason: v1alpha1.DeparturesHeldReason}, {Reason: v1alpha1.ClockSuspectReason}, wipe},
			},
			limits: oneInTwenty,
			want:   outcome{Held: []string{"a DeparturesHeld", "b DeparturesHeld"}, Members: 40, Next: never},
		},
		"HeldUnscheduled": {
			reason: "Case 50: the workload cluster was not seen yet. Who was told when may leave.",
			fleet: departurecap.Fleet{
				Counts: departurecap.Counts{Active: 40}, Candidates: list{scheduled("a"), b}, Holds: []departurecap.Hold{{Reason: v1alpha1.WarmUpReason, Unscheduled: true}, wipe},
			},
			limits: oneInTwenty,
			want:   outcome{Admitted: []string{"a"}, Held: []string{"b WarmUp"}, Members: 40, Next: never},
		},
		"WipeQuarantine": {
			reason: "Case 43: a wipe holds those who were not announced, and takes no room from the others.",
			fleet: departurecap.Fleet{
				Counts: departurecap.Counts{Active: 40}, Candidates: list{unscheduled("a", priority(0)), scheduled("b"), scheduled("c"), scheduled("d")}, Holds: []departurecap.Hold{wipe},
			},
			limits: oneInTwenty,
			want: outcome{
				Admitted: []string{"b", "c"}, Deferred: []string{"d BlastRadiusCap"}, Held: []string{"a WipeQuarantine"}, Members: 40, Next: 10 * s,
			},
		},
		"UnknownLane": {
			reason: "An unknown lane waits as the lane Unscheduled.",
			fleet:  departurecap.Fleet{Counts: departurecap.Counts{Active: 1}, Candidates: list{{Name: "a", Lane: "later", End: noon.Add(-time.Hour)}}, Holds: []departurecap.Hold{wipe}},
			limits: oneInTwenty,
			want:   outcome{Held: []string{"a WipeQuarantine"}, Members: 1, Next: never},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.fleet.Now = noon
			if diff := cmp.Diff(tc.want, outcomeOf(departurecap.Decide(tc.fleet, tc.limits))); diff != "" {
				t.Errorf("%s\nDecide(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFortyWindowsEndTogether(t *testing.T) {
	c := leaving(40, departurecap.Scheduled)
	if p := c.wake(noon); len(p.Admitted) != 2 || len(p.Deferred) != 38 {
		t.Fatalf("case 5: %d start and %d wait, want 2 and 38", len(p.Admitted), len(p.Deferred))
	}
	for i := range 1000 { // An edit occurs every 5 ms.
		if p := c.wake(noon.Add(time.Duration(i) * 5 * time.Millisecond)); len(p.Admitted) != 0 {
			t.Fatalf("cases 7 and 14: another starts after %d looks", i)
		}
	}
	c.run()
	if names := c.names(); len(names) != 40 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != 40 {
		t.Errorf("case 6: %d start, want each of 40 once: %v", len(names), names)
	}
}

// TestARefusalIsForgotten has refused machines, and a less important one that was not refused.
func TestARefusalIsForgotten(t *testing.T) {
	refused := func(ago time.Duration) func(*departurecap.Candidate) {
		return func(c *departurecap.Candidate) { c.Failed = noon.Add(-ago) }
	}
	const hour, patience = time.Hour, departurecap.MaxWait
	for name, tc := range map[string]struct {
		reason string
		of     []departurecap.Candidate
		want   []string
	}{
		"AMomentAgo": {
			"Those that cannot leave must not take the turns of those that can, however long they have waited.",
			[]departurecap.Candidate{unscheduled("a", priority(1), since(hour), refused(time.Second)), unscheduled("b", priority(90))},
			[]string{"b", "a"},
		},
		"JustSo": {
			"Ten minutes are what one waits that comes first.",
			[]departurecap.Candidate{unscheduled("a", priority(1), since(hour), refused(patience)), unscheduled("b", priority(90))},
			[]string{"b", "a"},
		},
		"LongAgo": {
			"It has waited for ten minutes since, while new ones came.",
			[]departurecap.Candidate{unscheduled("a", priority(90), since(hour), refused(patience+1)), unscheduled("b", priority(1))},
			[]string{"a", "b"},
		},
		"OthersWaitForLonger": {
			"It has had a turn, and the other one has not.",
			[]departurecap.Candidate{unscheduled("a", priority(1), since(hour), refused(patience+1)), unscheduled("b", priority(90), since(2*patience))},
			[]string{"b", "a"},
		},
		"InTurn": {
			"Of two that were refused the one that was last comes last.",
			[]departurecap.Candidate{unscheduled("a", priority(1), since(hour), refused(time.Second)), unscheduled("b", priority(90), refused(time.Minute))},
			[]string{"b", "a"},
		},
		"ClockWasSetBack": {
			"An instant to come says nothing.",
			[]departurecap.Candidate{unscheduled("a", priority(1), refused(-hour)), unscheduled("b", priority(90))},
			[]string{"a", "b"},
		},
	} {
		var got []string
		for _, a := range departurecap.Decide(departurecap.Fleet{Now: noon, Counts: departurecap.Counts{Active: len(tc.of)}, Candidates: tc.of}, 0).Admitted {
			got = append(got, a.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestAClockThatWasSetBackDoesNotStopTheOthers(t *testing.T) {
	started := departurecap.Recent(ago(-3*time.Hour, time.Second), noon)
	if diff := cmp.Diff([]time.Time{noon.Add(-time.Second), noon}, started); diff != "" {
		t.Fatalf("-want, +got:\n%s", diff)
	}
	if left := departurecap.Recent(started, noon.Add(departurecap.Window)); len(left) != 0 {
		t.Errorf("case 52: %v still count after %s", left, departurecap.Window)
	}
	if left := departurecap.Recent([]time.Time{{}, noon.Add(-departurecap.Window), noon.Add(time.Nanosecond - departurecap.Window)}, noon); len(left) != 1 {
		t.Errorf("%v count, want the one inside the window", left)
	}
}

func TestDecideKeepsWhatItIsGiven(t *testing.T) {
	f := departurecap.Fleet{Now: noon, Counts: departurecap.Counts{Active: 40, Started: ago(time.Second, 2*time.Second)}, Candidates: []departurecap.Candidate{unscheduled("b"), unscheduled("a")}}
	started, candidates := slices.Clone(f.Started), slices.Clone(f.Candidates)
	departurecap.Decide(f, oneInTwenty)
	if diff := cmp.Diff(started, f.Started) + cmp.Diff(candidates, f.Candidates); diff != "" {
		t.Errorf("the caller's lists were changed:\n%s", diff)
	}
}

// wipe is the hold of the wipe quarantine.
var wipe = departurecap.Hold{Reason: v1alpha1.WipeQuarantineReason, Unscheduled: true}

func TestLanesAreThoseOfTheRecord(t *testing.T) {
	if departurecap.Scheduled != departurecap.Lane(v1alpha1.ScheduledLane) || departurecap.Unscheduled != departurecap.Lane(v1alpha1.UnscheduledLane) {
		t.Error("a lane is called differently on the Machine")
	}
}

// TestWaitingSaysWhy checks the messages of a plan.
func TestWaitingSaysWhy(t *testing.T) {
	f := departurecap.Fleet{
		Now: noon, Counts: departurecap.Counts{Active: 3}, Candidates: []departurecap.Candidate{scheduled("a"), scheduled("b"), unscheduled("c")},
		Holds: []departurecap.Hold{{Reason: v1alpha1.WipeQuarantineReason, Message: "confirmed first", Unscheduled: true}},
	}
	p := departurecap.Decide(f, fraction("0.05"))
	const limit = "At most 5% of the machines (at least one) start to leave within 10s: others go first"
	if len(p.Deferred) != 1 || p.Deferred[0].Message != limit || len(p.Held) != 1 || p.Held[0].Message != "confirmed first" {
		t.Errorf("deferred %+v, held %+v", p.Deferred, p.Held)
	}
}

// TestAllClustersAreOneFleet checks the limit of all Clusters: each of a thousand Clusters with one machine may always
// start one, and all of them start no more than one Cluster of a thousand machines.
func TestAllClustersAreOneFleet(t *testing.T) {
	for _, lane := range []departurecap.Lane{departurecap.Scheduled, departurecap.Unscheduled} {
		const size = 1000
		waiting := candidates(size, lane)
		now, started := noon, []time.Time{}
		gone := departurecap.Counts{}
		for runs := 0; len(waiting) > 0 && runs < size; runs++ {
			var next time.Time
			starts, active := len(departurecap.Recent(started, now)), len(waiting)
			waiting = slices.DeleteFunc(waiting, func(c departurecap.Candidate) bool {
				f := departurecap.Fleet{Now: now, Counts: departurecap.Counts{Active: 1}, Candidates: []departurecap.Candidate{c}, Others: gone}
				f.Others.Active = active - 1
				f.Others.Started = slices.Clone(started)
				p := departurecap.Decide(f, oneInTwenty)
				next = p.Next
				if len(p.Admitted) == 0 {
					return false
				}
				started, starts, active = append(started, now), starts+1, active-1
				gone.Departed++
				return true
			})
			gone.Departed = len(departurecap.Within(started, now, departurecap.MaxWait))
			most := size / 20
			if lane == departurecap.Unscheduled {
				most = max(1, (len(waiting)+starts)/20)
			}
			if starts > most {
				t.Fatalf("%s: %d start within %s of %d, want at most %d", lane, starts, departurecap.Window, len(waiting), most)
			}
			if len(waiting) > 0 && !next.Equal(now.Add(departurecap.Window)) {
				t.Fatalf("%s: the next run is at %s, now is %s", lane, next, now)
			}
			now = next
		}
		longest := 390 * time.Second
		if lane == departurecap.Unscheduled {
			longest = 1060 * time.Second // as one Cluster of a thousand machines, see TestHowLongAFleetTakes
		}
		if last := started[len(started)-1].Sub(noon); len(waiting) > 0 || last > longest {
			t.Errorf("%s: %d wait, the last starts after %s", lane, len(waiting), last)
		}
	}
}

// TestOtherClustersOfTheFleet checks what a Cluster takes into account of the others.
func TestOtherClustersOfTheFleet(t *testing.T) {
	refused := unscheduled("a")
	refused.Failed = noon.Add(-time.Minute)
	const aged = departurecap.MaxWait + time.Minute
	waits := func(active int, planned time.Duration) departurecap.Counts {
		return departurecap.Counts{Active: active, Waiting: 1, Aged: ago(aged), Planned: after(-planned)}
	}
	for name, tc := range map[string]struct {
		reason   string
		active   int
		c        departurecap.Candidate
		other    departurecap.Counts
		admitted bool
	}{
		"NoneStarts":      {"The limit of 41 is two.", 1, unscheduled("a"), departurecap.Counts{Active: 40}, true},
		"OneStarts":       {"One is left.", 1, unscheduled("a"), departurecap.Counts{Active: 39, Started: ago(time.Second)}, true},
		"TheirTwo":        {"None is left.", 1, unscheduled("a"), departurecap.Counts{Active: 38, Started: ago(time.Second, time.Second)}, false},
		"TooManyOfThem":   {"Forty owners, or records by hand, take the starts of their Cluster only.", 100, unscheduled("a"), departurecap.Counts{Started: slices.Repeat(ago(time.Second), 40)}, true},
		"LongAgo":         {"Starts of an hour ago raise no limit.", 1, scheduled("a"), departurecap.Counts{Active: 20, Departed: 400, Started: append(slices.Repeat(ago(time.Hour), 400), noon)}, false},
		"RefusedGivesWay": {"A machine that could not leave lets another Cluster's go first.", 1, refused, departurecap.Counts{Active: 99, Waiting: 1, Planned: noon}, false},
		"AgedFirst":       {"Another one has waited for more than ten minutes.", 1, unscheduled("a"), waits(19, 0), false},
		"OlderFirst":      {"Both have waited for more than ten minutes.", 1, unscheduled("a", since(aged-1)), waits(19, 0), false},
		"SameAge":         {"Neither gives way, or both would wait for ever.", 1, unscheduled("a", since(aged)), waits(19, 0), true},
		"OldestFirst":     {"The other one gives way.", 1, unscheduled("a", since(aged+1)), waits(19, 0), true},
		"RoomForBoth":     {"The limit is two.", 1, unscheduled("a"), waits(39, 0), true},
		"NoPlanAnyMore":   {"The planner of the other Cluster fails.", 1, unscheduled("a"), waits(19, 4*departurecap.Window+1), true},
		"RefusedAlone":    {"It is tried again.", 1, refused, departurecap.Counts{Active: 99}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := departurecap.Fleet{Now: noon, Counts: departurecap.Counts{Active: tc.active}, Candidates: []departurecap.Candidate{tc.c}}
			f.Others = f.Others.Plus(tc.other, oneInTwenty, noon)
			p := departurecap.Decide(f, oneInTwenty)
			if len(p.Admitted) == 1 != tc.admitted {
				t.Errorf("%s\n%+v", tc.reason, p)
			}
			if !tc.admitted && (p.Next.IsZero() || p.Next.After(after(departurecap.Window))) {
				t.Errorf("the next run is at %s", p.Next)
			}
		})
	}
}

// TestOnlyWaitsForOtherClustersCount checks which candidates make other Clusters wait: only a candidate that its own
// Cluster admits.
func TestOnlyWaitsForOtherClustersCount(t *testing.T) {
	const aged = departurecap.MaxWait + time.Minute
	refused := unscheduled("r", since(aged))
	refused.Failed = noon.Add(-time.Minute)
	old := func(name string) departurecap.Candidate { return unscheduled(name, since(aged)) }
	busy := departurecap.Counts{Active: 10, Started: ago(time.Second)}
	for name, tc := range map[string]struct {
		f    departurecap.Fleet
		want int
	}{
		"OneOfTwo":   {departurecap.Fleet{Counts: departurecap.Counts{Active: 10}, Candidates: []departurecap.Candidate{old("a"), old("b")}, Others: busy}, 1},
		"OwnLimit":   {departurecap.Fleet{Counts: departurecap.Counts{Active: 10, Started: ago(time.Second)}, Candidates: []departurecap.Candidate{old("a")}}, 0},
		"OneStarts":  {departurecap.Fleet{Counts: departurecap.Counts{Active: 10}, Candidates: []departurecap.Candidate{old("a"), old("b")}}, 0},
		"Young":      {departurecap.Fleet{Counts: departurecap.Counts{Active: 10}, Candidates: []departurecap.Candidate{unscheduled("a")}, Others: busy}, 0},
		"Refused":    {departurecap.Fleet{Counts: departurecap.Counts{Active: 10}, Candidates: []departurecap.Candidate{refused}, Others: busy}, 0},
		"HeldByWipe": {departurecap.Fleet{Counts: departurecap.Counts{Active: 10}, Candidates: []departurecap.Candidate{old("a")}, Others: busy, Holds: []departurecap.Hold{wipe}}, 0},
	} {
		tc.f.Now = noon
		if got := tc.f.After(departurecap.Decide(tc.f, oneInTwenty), oneInTwenty, noon).Aged; len(got) != tc.want {
			t.Errorf("%s: %v make other Clusters wait, want %d", name, got, tc.want)
		}
	}
}

// TestTheNextRunIsForTheFirstInOrder has a machine that has waited longest of all, and one that gives way to another
// Cluster.
func TestTheNextRunIsForTheFirstInOrder(t *testing.T) {
	f := departurecap.Fleet{
		Now: noon, Counts: departurecap.Counts{Active: 10},
		Candidates: []departurecap.Candidate{unscheduled("a", since(departurecap.MaxWait+2*time.Minute)), unscheduled("b")},
		Others:     departurecap.Counts{Active: 10, Started: ago(8 * time.Second), Waiting: 1, Aged: ago(departurecap.MaxWait + time.Minute), Planned: noon},
	}
	if next := departurecap.Decide(f, oneInTwenty).Next; !next.Equal(after(2 * time.Second)) {
		t.Errorf("the next run is at %s", next)
	}
}
