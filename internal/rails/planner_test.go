// SPDX-License-Identifier: Apache-2.0

package rails_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// A planner plans for one Cluster, stores its rails, and starts departures.
type planner struct {
	departurecap.Fleet
	wipe    rails.Wipe
	left    int
	starts  []start
	suspect bool
	recent  []time.Time // the starts within departurecap.Window
}

type start struct {
	at time.Time
	departurecap.Candidate
}

func newPlanner(machines int) *planner {
	return &planner{Fleet: departurecap.Fleet{Counts: departurecap.Counts{Active: machines}}, wipe: rails.Wipe{Baseline: machines}}
}

// edit makes the machines of the list due.
func (p *planner) edit(lane departurecap.Lane, list ...string) {
	for _, name := range list {
		c := departurecap.Candidate{Name: name, Lane: lane, Since: p.Now}
		if lane == departurecap.Scheduled {
			c.End = p.Now
		}
		p.Candidates = append(p.Candidates, c)
	}
}

// wake plans, and returns when to plan again.
func (p *planner) wake(at time.Time) time.Time {
	p.Now = at
	kept := p.Active
	for _, c := range p.Candidates {
		if c.Lane != departurecap.Scheduled {
			kept--
		}
	}
	var verdict rails.WipeVerdict
	p.wipe, verdict = p.wipe.Judge(rails.Count{At: at, Kept: kept, Left: p.left})
	p.left, p.Holds = 0, nil
	if p.suspect {
		p.Holds = append(p.Holds, departurecap.Hold{Reason: v1alpha1.ClockSuspectReason})
	}
	if verdict == rails.Quarantined {
		p.Holds = append(p.Holds, departurecap.Hold{Reason: v1alpha1.WipeQuarantineReason, Unscheduled: true})
	}
	p.recent = departurecap.Within(p.recent, at, departurecap.MaxWait)
	p.Departed = len(p.recent)
	plan := departurecap.Decide(p.Fleet, 50_000)
	for _, a := range plan.Admitted {
		p.starts = append(p.starts, start{at, a})
		p.Active--
		p.recent = append(p.recent, at)
		p.left++
		p.Started = append(departurecap.Recent(p.Started, at), at)
		p.Candidates = slices.DeleteFunc(p.Candidates, func(c departurecap.Candidate) bool { return c == a })
	}
	next := plan.Next
	if w := p.wipe.Next(); next.IsZero() || !w.IsZero() && w.Before(next) {
		next = w
	}
	return next
}

// until counts the starts up to an instant.
func (p *planner) until(at time.Time) int {
	n := 0
	for _, s := range p.starts {
		if !s.at.After(at) {
			n++
		}
	}
	return n
}

func (p *planner) run(from time.Time) {
	for at := from; !at.IsZero(); {
		at = p.wake(at)
	}
}

func TestAWipeIsHeldAndThenSpread(t *testing.T) {
	p := newPlanner(40)
	p.Now = noon
	p.edit(departurecap.Unscheduled, names(0, 40)...)
	p.run(noon)
	if first := p.starts[0].at; !first.Equal(after(20 * time.Second)) {
		t.Errorf("case 30: the first starts at %v, want 20 s after noon", first)
	}
	for seconds, want := range map[int]int{20: 2, 29: 2, 30: 3, 400: 40} {
		if got := p.until(after(time.Duration(seconds) * time.Second)); got != want {
			t.Errorf("case 37: after %d s %d have started, want %d", seconds, got, want)
		}
	}
}

func TestWindowsEndDuringAWipe(t *testing.T) {
	p := newPlanner(400)
	p.Now = noon
	p.edit(departurecap.Unscheduled, names(0, 390)...)
	p.edit(departurecap.Scheduled, names(390, 400)...)
	p.wake(noon)
	p.wake(after(10 * time.Second))
	if p.wipe.Held != 2 || len(p.starts) != 10 {
		t.Fatalf("case 43: held for %d looks, %d have started, want 2 and 10", p.wipe.Held, len(p.starts))
	}
	for _, s := range p.starts {
		if s.Lane != departurecap.Scheduled {
			t.Errorf("case 43: %s starts", s.Name)
		}
	}
}

func TestManyEditsOneByOne(t *testing.T) {
	p := newPlanner(500)
	for i := range 101 { // Five edits in each quarter of a second.
		p.Now = after(time.Duration(i) * 250 * time.Millisecond)
		if i < 100 {
			p.edit(departurecap.Unscheduled, names(i*5, i*5+5)...)
		}
		p.wake(p.Now)
	}
	if p.wipe.Held != 1 || len(p.starts) > 75 {
		t.Fatalf("case 41: held for %d looks after %d have started, want 1 and no more than three windows let through", p.wipe.Held, len(p.starts))
	}
	held := len(p.starts)
	p.run(p.wipe.Next())
	if p.Active != 0 {
		t.Errorf("%d stay after the wipe was confirmed", p.Active)
	}
	if next := p.starts[held].at; next.Before(after(40 * time.Second)) {
		t.Errorf("the next starts at %v, before three looks agreed", next)
	}
}

func TestANormalEvening(t *testing.T) {
	p := newPlanner(500)
	p.Now = noon
	p.edit(departurecap.Scheduled, names(0, 500)...)
	for at := noon; !at.IsZero(); {
		at = p.wake(at)
		if p.wipe.Held != 0 {
			t.Fatalf("case 22: at %v it is held", p.Now)
		}
	}
	if p.Active != 0 || p.until(after(390*time.Second)) != 500 {
		t.Errorf("case 22: %d stay", p.Active)
	}
}

// TestAClockThatIsSet is P17 for departures: a clock that is set causes no start that a correct clock would not
// cause, apart from the accepted skew of one minute.
func TestAClockThatIsSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var clock rails.Clock
		p, now, offset := newPlanner(60), noon, time.Duration(0)
		ends := map[string]time.Time{}
		for _, name := range names(0, 60) {
			ends[name] = after(time.Duration(rapid.IntRange(-60, 60).Draw(t, "minute")) * time.Minute)
		}
		right := 3 // samples in a row
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			offset = rapid.SampledFrom([]time.Duration{offset, offset, 0, time.Minute, -time.Minute, 6 * time.Hour, -3 * time.Hour}).Draw(t, "offset")
			clock = clock.Sample(offset)
			if right++; offset.Abs() > time.Minute {
				right = 0
			}
			p.suspect = clock.Trust() == rails.Suspect
			p.Candidates = nil
			left := map[string]bool{}
			for _, s := range p.starts {
				left[s.Name] = true
			}
			for name, end := range ends {
				if !left[name] && !now.Add(offset).Before(end) {
					p.Candidates = append(p.Candidates, departurecap.Candidate{Name: name, Lane: departurecap.Scheduled, End: end})
				}
			}
			was := len(p.starts)
			p.wake(now.Add(offset))
			for _, s := range p.starts[was:] {
				late := now.Sub(ends[s.Name])
				if late < -time.Minute || right < 3 {
					t.Fatalf("%s starts %s late, after %d right samples", s.Name, late, right)
				}
			}
		}
	})
}

// names returns the names of machines in a range of numbers.
func names(from, to int) []string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("m%04d", i))
	}
	return list
}
