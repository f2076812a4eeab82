// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.steps", "100"); err != nil { // a hundred worlds of a hundred steps
		panic(err)
	}
	os.Exit(m.Run())
}

// A world has some Clusters, a sequence of managers, and a manager's clock that people set. now is the real
// time, by which the events are recorded.
type world struct {
	now    time.Time     // real time
	offset time.Duration // of the manager's clock
	led    time.Time     // when this manager became leader
	limits departurecap.Fraction
	farms  []*farm
	made   int
}

// A farm is the real state of a Cluster.
type farm struct {
	machines   []*machine
	remembered []time.Time // starts that the manager has recorded
	departed   []time.Time // starts within departurecap.Window that it has recorded
	begun      []begun
	most       int // maximum number of members so far
}

type machine struct {
	name      string
	candidate *departurecap.Candidate
	leaving   bool
	record    time.Time // by the manager's clock, to the second
}

// begun is a real departure.
type begun struct {
	at     time.Time
	name   string
	exempt bool
}

// clock returns the time of the manager's clock.
func (w *world) clock() time.Time { return w.now.Add(w.offset) }

// holds returns the holds of a manager that checks its clock and its warm-up.
func (w *world) holds() (holds []departurecap.Hold) {
	if w.offset.Abs() > time.Minute {
		holds = append(holds, departurecap.Hold{Reason: v1alpha1.ClockSuspectReason})
	}
	if w.now.Sub(w.led) < departurecap.Window {
		holds = append(holds, departurecap.Hold{Reason: v1alpha1.WarmUpReason})
	}
	return holds
}

func (w *world) fleet(f *farm) departurecap.Fleet {
	fleet := w.alone(f)
	for _, other := range w.farms {
		if other != f {
			fleet.Others = fleet.Others.Plus(w.alone(other).After(departurecap.Plan{}, w.limits, fleet.Now), w.limits, fleet.Now)
		}
	}
	return fleet
}

// alone is the fleet of a manager with one Cluster.
func (w *world) alone(f *farm) departurecap.Fleet {
	fleet := departurecap.Fleet{Now: w.clock(), Holds: w.holds()}
	for _, m := range f.machines {
		if m.leaving {
			continue
		}
		fleet.Active++
		if m.candidate != nil {
			fleet.Candidates = append(fleet.Candidates, *m.candidate)
		}
	}
	for _, at := range f.remembered { // as an instant with a monotonic reading
		fleet.Started = append(fleet.Started, at.Add(w.offset))
	}
	f.departed = departurecap.Within(f.departed, w.now, departurecap.MaxWait)
	fleet.Departed = len(f.departed)
	return fleet
}

// find returns a machine, nil if there is none.
func (f *farm) find(name string) *machine {
	i := slices.IndexFunc(f.machines, func(m *machine) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return f.machines[i]
}

// begin starts the departure of a machine.
func (w *world) begin(f *farm, b begun) {
	b.at = w.now
	m := f.find(b.name)
	m.leaving, m.candidate, m.record = true, nil, w.clock().Truncate(time.Second)
	f.remembered, f.departed = append(f.remembered, w.now), append(f.departed, w.now)
	f.begun = append(f.begun, b)
}

// restart replaces the manager. The new one reads the records of the machines that exist.
func (w *world) restart() {
	w.led = w.now
	for _, f := range w.farms {
		var records []time.Time
		for _, m := range f.machines {
			if m.leaving {
				records = append(records, m.record.Add(time.Second)) // not before the real start
			}
		}
		f.remembered, f.departed = nil, nil
		for _, at := range departurecap.Recent(records, w.clock()) {
			f.remembered, f.departed = append(f.remembered, at.Add(-w.offset)), append(f.departed, at.Add(-w.offset))
		}
	}
}

// wake plans for a farm and carries out admissions until the manager stops.
func (w *world) wake(t *rapid.T, f *farm, lives int) {
	fleet := w.fleet(f)
	p := departurecap.Decide(fleet, w.limits)
	w.check(t, f, fleet, p)
	for i, a := range p.Admitted {
		if i == lives {
			w.restart()
			return
		}
		w.begin(f, begun{name: a.Name})
	}
	w.checkNext(t, f, p)
}

// within returns the departures of the last Window.
func (w *world) within(f *farm) []begun {
	return slices.DeleteFunc(slices.Clone(f.begun), func(b begun) bool { return w.now.Sub(b.at) >= departurecap.Window })
}

// most computes the limit by counting.
func most(n int, limit departurecap.Fraction) int {
	k := 1
	for (k+1)*1_000_000 <= int(limit)*n {
		k++
	}
	return k
}

// check validates a plan before it is carried out.
func (w *world) check(t *rapid.T, f *farm, fleet departurecap.Fleet, p departurecap.Plan) {
	checkWhole(t, fleet.Candidates, p)
	checkOrder(t, fleet, p)
	within := w.within(f)
	members := fleet.Active + max(len(within), fleet.Departed)
	f.most = max(f.most, members)
	for _, a := range p.Admitted {
		m := f.find(a.Name)
		switch {
		case m == nil || m.leaving || m.candidate == nil:
			t.Fatalf("%s starts and is no candidate", a.Name)
		case len(fleet.Holds) > 0:
			t.Fatalf("%s starts through %+v", a.Name, fleet.Holds)
		}
	}
	if limit := most(members, w.limits); w.limits > 0 && len(p.Admitted) > 0 && len(within)+len(p.Admitted) > limit {
		t.Fatalf("%d start after %d within %s, of %d only %d may", len(p.Admitted), len(within), departurecap.Window, members, limit)
	}
	recent, all := 0, 0
	for _, other := range w.farms {
		fleet := w.alone(other)
		for _, b := range w.within(other) {
			if !b.exempt {
				recent++
			}
		}
		all += fleet.Active + max(len(w.within(other)), fleet.Departed)
	}
	if limit := most(all, w.limits); w.limits > 0 && len(p.Admitted) > 0 && recent+len(p.Admitted) > limit {
		t.Fatalf("%d start after %d of all Clusters within %s, of %d only %d may", len(p.Admitted), recent, departurecap.Window, all, limit)
	}
}

// checkWhole checks that a plan has each candidate once, and unchanged.
func checkWhole(t *rapid.T, candidates []departurecap.Candidate, p departurecap.Plan) {
	planned := map[departurecap.Candidate]int{}
	for _, a := range p.Admitted {
		planned[a]++
	}
	for _, w := range slices.Concat(p.Deferred, p.Held) {
		planned[w.Candidate]++
	}
	for _, c := range candidates {
		if planned[c] != 1 {
			t.Fatalf("%+v is in the plan %d times", c, planned[c])
		}
	}
	if len(planned) != len(candidates) {
		t.Fatalf("%d candidates, %d in the plan", len(candidates), len(planned))
	}
}

// checkOrder checks, for each lane, that no deferred candidate precedes one that starts.
func checkOrder(t *rapid.T, fleet departurecap.Fleet, p departurecap.Plan) {
	for _, w := range p.Deferred {
		for _, a := range p.Admitted {
			if a.Lane == w.Lane && comesBefore(w.Candidate, a, fleet.Now) {
				t.Fatalf("%+v waits, and %+v starts", w, a)
			}
		}
	}
}

// comesBefore is the order of departures, rule by rule.
func comesBefore(a, b departurecap.Candidate, now time.Time) bool {
	long := func(c departurecap.Candidate) bool { return c.Since.Add(departurecap.MaxWait).Before(now) }
	if long(a) != long(b) {
		return long(a)
	}
	if long(a) && !a.Since.Equal(b.Since) {
		return a.Since.Before(b.Since)
	}
	if a.Priority != b.Priority {
		return a.Priority < b.Priority
	}
	if a.End.IsZero() != b.End.IsZero() {
		return b.End.IsZero()
	}
	if !a.End.Equal(b.End) {
		return a.End.Before(b.End)
	}
	return a.Name < b.Name
}

// sameWaits reports whether the same candidates wait for the same reasons.
func sameWaits(p, q departurecap.Plan) bool {
	all := map[string]departurecap.Waiting{}
	for _, w := range slices.Concat(p.Deferred, p.Held) {
		all[w.Name] = w
	}
	return len(p.Deferred) == len(q.Deferred) && len(p.Held) == len(q.Held) &&
		!slices.ContainsFunc(slices.Concat(q.Deferred, q.Held), func(w departurecap.Waiting) bool {
			return all[w.Name].Candidate != w.Candidate || all[w.Name].Message != w.Message || all[w.Name].Reason != w.Reason
		})
}

// checkNext plans again after a plan was carried out. The result must not change before the instant in Next,
// and must change at that instant.
func (w *world) checkNext(t *rapid.T, f *farm, p departurecap.Plan) {
	until := time.Hour
	if !p.Next.IsZero() {
		until = p.Next.Sub(w.clock())
	}
	fleet := w.fleet(f)
	for _, later := range []time.Duration{0, time.Duration(rapid.Int64Range(0, int64(until)-1).Draw(t, "later")), until - 1} {
		fleet.Now = w.clock().Add(later)
		if again := departurecap.Decide(fleet, w.limits); len(again.Admitted) != 0 || !sameWaits(again, p) {
			t.Fatalf("next is in %s, and after %s\n%+v\nbecomes\n%+v", until, later, p, again)
		}
	}
	if p.Next.IsZero() {
		return
	}
	fleet.Now = p.Next
	if again := departurecap.Decide(fleet, w.limits); len(again.Admitted) == 0 && sameWaits(again, p) {
		t.Fatalf("nothing comes of looking again after %s\n%+v", until, p)
	}
}

// some draws a few machines of a farm for which what returns true.
func (f *farm) some(t *rapid.T, what func(*machine) bool) []*machine {
	all := slices.DeleteFunc(slices.Clone(f.machines), func(m *machine) bool { return !what(m) })
	if len(all) == 0 {
		return nil
	}
	from := rapid.IntRange(0, len(all)-1).Draw(t, "from")
	return all[from:rapid.IntRange(from, len(all)).Draw(t, "to")]
}

func active(m *machine) bool   { return !m.leaving && m.candidate == nil }
func waiting(m *machine) bool  { return m.candidate != nil }
func staying(m *machine) bool  { return !m.leaving }
func departed(m *machine) bool { return m.leaving }

// drawWorld returns a world with the steps that can happen in it.
func drawWorld(t *rapid.T) (*world, map[string]func(*rapid.T)) {
	w := &world{now: noon, led: noon.Add(-time.Hour), limits: drawLimits().Draw(t, "limits")}
	for range rapid.IntRange(1, 3).Draw(t, "clusters") {
		w.farms = append(w.farms, &farm{})
	}
	in := func(t *rapid.T) *farm { return w.farms[rapid.IntRange(0, len(w.farms)-1).Draw(t, "cluster")] }
	join := func(t *rapid.T) {
		for f, n := in(t), rapid.IntRange(1, 60).Draw(t, "machines"); n > 0 && len(f.machines) < 60; n-- {
			w.made++
			f.machines = append(f.machines, &machine{name: fmt.Sprintf("m%05d", w.made)})
		}
	}
	depart := func(lane departurecap.Lane) func(*rapid.T) {
		return func(t *rapid.T) {
			for _, m := range in(t).some(t, active) {
				c := departurecap.Candidate{Name: m.name, Lane: lane, Priority: rapid.Int32Range(0, 3).Draw(t, "priority"), Since: w.clock()}
				if lane == departurecap.Scheduled {
					c.End = w.now.Add(-rapid.SampledFrom([]time.Duration{0, time.Second, 9 * time.Minute}).Draw(t, "late"))
				}
				m.candidate = &c
			}
		}
	}
	join(t)
	return w, map[string]func(*rapid.T){
		"join": join,
		"end":  depart(departurecap.Scheduled),
		"edit": depart(departurecap.Unscheduled),
		"withdraw": func(t *rapid.T) {
			for _, m := range in(t).some(t, waiting) {
				m.candidate = nil
			}
		},
		"emergency": func(t *rapid.T) {
			f := in(t)
			for i, m := range f.some(t, staying) {
				if i < 5 {
					w.begin(f, begun{name: m.name, exempt: true})
				}
			}
		},
		"gone": func(t *rapid.T) {
			f := in(t)
			gone := f.some(t, departed)
			f.machines = slices.DeleteFunc(f.machines, func(m *machine) bool { return slices.Contains(gone, m) })
		},
		"pass": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond)
		},
		"pass a window": func(*rapid.T) { w.now = w.now.Add(departurecap.Window) },
		"pass long":     func(*rapid.T) { w.now = w.now.Add(departurecap.MaxWait) },
		"set the clock": func(t *rapid.T) {
			w.offset = rapid.SampledFrom([]time.Duration{0, 0, time.Minute, -time.Minute, -3 * time.Hour, 6 * time.Hour}).Draw(t, "offset")
		},
		"restart": func(*rapid.T) { w.restart() },
		"crash":   func(t *rapid.T) { w.wake(t, in(t), rapid.IntRange(0, 3).Draw(t, "lives")) },
		"":        func(t *rapid.T) { w.wake(t, in(t), -1) },
	}
}

func drawLimits() *rapid.Generator[departurecap.Fraction] {
	return rapid.SampledFrom([]departurecap.Fraction{fraction("0.05"), fraction("0.05"), fraction("0.29"), fraction("0.000001"), fraction("1"), 0})
}

// TestStartsNeverExceedTheLimit is P1, P2, P4, P6, P8, P16 and P22. Whatever people, owners, clocks and crashes do, the
// starts within 10 s never exceed the limit. Starts are in order, no machine starts twice, and additional
// planner runs have no effect.
func TestStartsNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, steps := drawWorld(t)
		t.Repeat(steps)
		for _, f := range w.farms {
			checkBegun(t, f, w.limits)
		}
	})
}

// checkBegun validates all departures of a farm.
func checkBegun(t *rapid.T, f *farm, limit departurecap.Fraction) {
	once := map[string]bool{}
	windows := map[int64]int{}
	for _, b := range f.begun {
		if once[b.name] {
			t.Fatalf("%s started twice", b.name)
		}
		once[b.name] = true
		if !b.exempt {
			windows[b.at.UnixNano()/int64(departurecap.Window)]++
		}
	}
	for at, n := range windows {
		if limit > 0 && n > most(f.most, limit) {
			t.Fatalf("%d start in window %d, of %d at most", n, at, f.most)
		}
	}
}
