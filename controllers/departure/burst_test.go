// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// kill turns kill switches on, from one machine up to another, and returns how many are served.
func (w *world) kill(from, to int) (served int) {
	for i := from; i < to; i++ {
		w.tell(i, func(e *roster.Entry) { e.Killed = true })
		if w.r.Roster.Kill(box(i), uid(i), w.clock.Now()).Granted {
			served++
		}
	}
	return served
}

// wantWaiting checks how many kill switches are shown to wait, and how often the API server has
// been asked.
func (w *world) wantWaiting(waiting string, listed int) {
	w.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.r.Collector())
	want := `# HELP fivespot_kill_switches_waiting How many kill switches wait because many were turned on at once, which is confirmed first; 0 where none does. By namespace and Cluster.
# TYPE fivespot_kill_switches_waiting gauge
fivespot_kill_switches_waiting{cluster="lab",namespace="farm"} ` + waiting + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fivespot_kill_switches_waiting"); err != nil {
		w.Error(err)
	}
	if w.listed != listed {
		w.Errorf("at %s the API server has been asked %d times, want %d", w.clock.Now().Format(time.TimeOnly), w.listed, listed)
	}
}

// TestABurstIsConfirmedByThreeLooks has 40 kill switches be turned on, and the planner be woken
// more often than it has to look.
func TestABurstIsConfirmedByThreeLooks(t *testing.T) {
	w := newGuarded(t, 40)
	if got := w.kill(0, 40); got != 10 {
		t.Fatalf("%d are served before the planner looks", got)
	}
	for look := range 3 {
		if got := w.kill(10, 40); got != 0 {
			t.Fatalf("%d are served after %d looks", got, look)
		}
		next := w.plan()
		if look == 2 {
			break
		}
		w.wantWaiting("30", look+1)
		if next != rails.Apart {
			t.Errorf("it looks again in %s", next)
		}
		w.after(rails.Apart - 1)
		if next := w.plan(); next != time.Millisecond {
			t.Errorf("it looks again in %s, and a look is due", next)
		}
		w.wantWaiting("30", look+1)
		w.after(1)
	}
	w.wantWaiting("0", 3)
	if got := w.kill(10, 40); got != 30 {
		t.Errorf("%d are served when all are confirmed", got)
	}
	told := w.events()
	want := "Warning " + v1alpha1.KillSwitchBurstEngagedEvent + " More kill switches are turned on within 10 s than are served at once, which is 10 of 40. " +
		"The others wait until that has been confirmed, for 30 s at most: if it is a mistake, turn them off now"
	if diff := cmp.Diff([]string{want}, told); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestALookAtABurstThatIsNone has the API server not answer.
func TestALookAtABurstThatIsNone(t *testing.T) {
	w := newGuarded(t, 40)
	w.failing = errors.New("broken")
	w.kill(0, 40)
	for look := range 3 {
		if next := w.plan(); next != rails.Apart {
			t.Errorf("it looks again in %s", next)
		}
		w.wantWaiting("30", look+1)
		w.after(3 * time.Second)
		if next := w.plan(); next != 7*time.Second {
			t.Errorf("it looks again in %s", next)
		}
		w.wantWaiting("30", look+1)
		w.after(7 * time.Second)
		if got := w.kill(10, 40); got != 0 && look < 2 || got != 30 && look == 2 {
			t.Errorf("%d are served after %d looks that were none", got, look+1)
		}
	}
	w.plan()
	w.wantWaiting("0", 3)
}

// TestABurstThatIsUndone has the API server show that the kill switches are off again, and the
// cache be late for a minute.
func TestABurstThatIsUndone(t *testing.T) {
	w := newGuarded(t, 40)
	w.off = map[int]bool{}
	for i := range 40 {
		w.off[i] = true
	}
	w.kill(0, 40)
	for range 60 {
		w.plan()
		w.wantWaiting("0", 1)
		if got := w.kill(10, 40); got != 0 {
			t.Fatalf("%d are served at %s", got, w.clock.Now().Format(time.TimeOnly))
		}
		w.after(time.Second)
	}
	if told := w.events(); len(told) != 0 {
		t.Errorf("told %q", told)
	}
}

// TestWhatALookTakesCountsInTheSameRun has the API server take nine seconds for a list, in which
// a window ends.
func TestWhatALookTakesCountsInTheSameRun(t *testing.T) {
	const slow = 9 * time.Second
	w := newGuarded(t, 40)
	w.kill(0, 40)
	w.after(departure.Window)
	w.listing = func() { w.after(slow) }
	w.tell(39, func(e *roster.Entry) {
		e.Killed, e.From, e.Lane = false, w.clock.Now().Add(slow), departure.Unscheduled
	})
	w.plan()
	if v := w.verdict(39); !v.Granted || v.Cycle != w.clock.Now().UnixMilli() {
		t.Errorf("after the look it is told %+v", v)
	}
}

// TestABurstIsNoWipe has all kill switches be on of a Cluster, one machine be unwanted, and the
// manager be cold: neither holds the other up.
func TestABurstIsNoWipe(t *testing.T) {
	w := newWorld(t, 40)
	w.guarded = true
	w.start()
	if got := w.kill(0, 39); got != 10 {
		t.Errorf("%d are served by a manager that is cold", got)
	}
	w.plan()
	w.after(lease)
	w.leaves(departure.Unscheduled, 39)
	w.plan()
	if v := w.verdict(39); v.Reason == departure.WipeQuarantine {
		t.Errorf("%+v", v)
	}
	w.wantHeld("0")
}

// TestWithoutKillSwitchesNobodyIsAsked has none be on, and then the ten that may.
func TestWithoutKillSwitchesNobodyIsAsked(t *testing.T) {
	w := newGuarded(t, 40)
	w.plan()
	w.kill(0, 10)
	w.plan()
	w.wantWaiting("0", 0)
	if told := w.events(); len(told) != 0 {
		t.Errorf("told %q", told)
	}
}
