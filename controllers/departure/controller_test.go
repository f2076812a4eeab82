// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// TestANewLeaderWarmsUp makes machines due while a manager becomes leader.
func TestANewLeaderWarmsUp(t *testing.T) {
	const s = time.Second
	w := newWorld(t, 40)
	w.leaves(departure.Scheduled, 0)
	w.leaves(departure.Unscheduled, 1)
	for _, step := range []struct {
		reason string
		at     time.Duration
		next   time.Duration
		began  []int
		waits  departure.Reason
	}{
		{"What the leader before let start is in no list.", 0, 10 * s, nil, departure.WarmingUp},
		{"For a whole window.", 10*s - 1, 1, nil, departure.WarmingUp},
		{"An end that was announced needs no more; the leader before may still believe to lead.", 10 * s, 5 * s, []int{0}, departure.WarmingUp},
		{"Now it cannot.", 15 * s, 5 * s, []int{1}, ""},
	} {
		w.clock.SetTime(noon.Add(step.at))
		next := max(w.plan(), 1)
		began := w.begin()
		if diff := cmp.Diff(step.began, began); diff != "" || w.verdict(1).Reason != step.waits {
			t.Errorf("after %s the other one waits for %q: %s\n%s", step.at, w.verdict(1).Reason, step.reason, diff)
		}
		if step.waits != "" && next != max(step.next, time.Millisecond) {
			t.Errorf("after %s the planner asks again in %s, want %s: %s", step.at, next, step.next, step.reason)
		}
	}
}

// TestWithoutLimitsNobodyWaits uses a manager without limits.
func TestWithoutLimitsNobodyWaits(t *testing.T) {
	w := newWorld(t, 40)
	w.r.Limits = departure.Limits{}
	for i := range 40 {
		w.leaves(departure.Unscheduled, i)
	}
	if next := w.plan(); len(w.begin()) != 40 || next > departure.Window {
		t.Errorf("not all leave at once, or the planner asks again in %s", next)
	}
}

// TestASettledClusterIsLeftAlone has no machine that is due: the planner requeues nothing.
func TestASettledClusterIsLeftAlone(t *testing.T) {
	w := newWorld(t, 40)
	for range 3 {
		if next := w.plan(); next != 0 {
			t.Errorf("asks again in %s", next)
		}
		w.after(lease)
	}
	if told := w.events(); len(told) != 0 {
		t.Errorf("told %v", told)
	}
}

// TestARestartKeepsTheCap restarts the manager while machines leave, five at a time.
func TestARestartKeepsTheCap(t *testing.T) {
	const most = 5
	w := newWorld(t, 100)
	w.warm()
	for i := range 60 {
		w.leaves(departure.Unscheduled, i)
	}
	var starts []time.Time
	for second := range 120 {
		if second == 33 || second == 62 {
			w.start()
		}
		w.plan()
		for range w.begin() {
			starts = append(starts, w.clock.Now())
		}
		w.after(time.Second)
	}
	if len(starts) < 20 {
		t.Errorf("%d start in two minutes", len(starts))
	}
	for i := most; i < len(starts); i++ {
		if d := starts[i].Sub(starts[i-most]); d < departure.Window {
			t.Errorf("%d start within %s", most+1, d)
		}
	}
}

// TestAnOwnerIsNotPlanned starts an urgent departure during the warm-up.
func TestAnOwnerIsNotPlanned(t *testing.T) {
	w := newWorld(t, 44)
	w.r.Roster.RecordExemptStart(box(0), uid(0), w.clock.Now())
	w.report(0, func(e *roster.Entry) { e.Left = w.clock.Now() })
	w.plan()
	w.after(lease - 6*time.Second)
	w.leaves(departure.Scheduled, 1, 2)
	w.after(time.Second)
	if w.plan(); len(w.begin()) != 2 {
		t.Error("an owner's machine that left long ago counts")
	}
}
