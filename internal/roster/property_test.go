// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// TestNoMoreStartThanMay changes what is due, starts urgent departures, and delays or drops reconciles, in
// random order. The real start of a departure counts.
func TestNoMoreStartThanMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const machines = 45
		w := &story{now: noon, left: map[int]bool{}}
		for i := range machines {
			w.say(i, time.Time{})
		}
		one := rapid.IntRange(0, machines-1)
		t.Repeat(map[string]func(*rapid.T){
			"unwanted": func(t *rapid.T) {
				for _, i := range rapid.SliceOfN(one, 1, 10).Draw(t, "machines") {
					w.say(i, w.now)
				}
			},
			"unwanted soon": func(t *rapid.T) { w.say(one.Draw(t, "machine"), w.now.Add(5*time.Second)) },
			"wanted again":  func(t *rapid.T) { w.say(one.Draw(t, "machine"), time.Time{}) },
			"plan":          func(*rapid.T) { w.plan() },
			"reconcile": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					w.reconcile(t, one.Draw(t, "machine"))
				}
			},
			"owner": func(t *rapid.T) {
				if i := one.Draw(t, "machine"); !w.left[i] {
					w.roster.RecordExemptStart(box(i), uid(i), w.now)
					w.starts(i)
					w.owners = append(w.owners, w.now)
				}
			},
			"time passes": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) {},
		})
	})
}

// A story is a sequence of events of a roster.
type story struct {
	roster  roster.Roster
	now     time.Time
	left    map[int]bool
	started []time.Time // of all machines
	owners  []time.Time // of urgent departures, which need no grant
}

var fraction = departure.Limits{Cap: 50_000}

func (w *story) say(i int, from time.Time) {
	if !w.left[i] {
		w.roster.Report(box(i), roster.Entry{Cluster: lab, Machine: uid(i), From: from, Lane: departure.Unscheduled}, w.now)
	}
}

func (w *story) plan() {
	f, _ := w.roster.Fleet(lab, w.now)
	w.roster.Publish(lab, departure.Decide(f, fraction), w.now)
}

// reconcile starts the departure of a machine if it is granted.
func (w *story) reconcile(t *rapid.T, i int) {
	if w.left[i] || !w.roster.RequestGrant(box(i), uid(i), w.now).Granted {
		return
	}
	within := w.recent(w.started)
	most, voluntary := fraction.Cap.Of(45-len(w.left)+within), within-w.recent(w.owners)
	if voluntary >= most {
		t.Fatalf("at %v %d have started within ten seconds, and another one does: at most %d may", w.now, voluntary, most)
	}
	w.starts(i)
	w.roster.Report(box(i), roster.Entry{Cluster: lab, Machine: uid(i), Left: w.now}, w.now)
}

func (w *story) starts(i int) {
	w.left[i] = true
	w.started = append(w.started, w.now)
}

// recent counts the instants within Window.
func (w *story) recent(instants []time.Time) (n int) {
	for _, at := range slices.Backward(instants) {
		if w.now.Sub(at) >= departure.Window {
			break
		}
		n++
	}
	return n
}

// TestEverybodyLeavesInTheEnd makes all machines of a Cluster due, and reconciles each whenever it is enqueued.
func TestEverybodyLeavesInTheEnd(t *testing.T) {
	w := &story{now: noon, left: map[int]bool{}}
	for i := range 45 {
		w.say(i, noon)
	}
	for range 400 {
		w.plan()
		for i := range 45 {
			if !w.left[i] && w.roster.RequestGrant(box(i), uid(i), w.now).Granted {
				w.starts(i)
				w.roster.Report(box(i), roster.Entry{Cluster: lab, Machine: uid(i), Left: w.now}, w.now)
				w.roster.Report(box(i), roster.Entry{Cluster: lab}, w.now)
			}
		}
		f, _ := w.roster.Fleet(lab, w.now)
		plan := departure.Decide(f, fraction)
		if plan.Next.IsZero() {
			break
		}
		w.now = plan.Next
	}
	if len(w.left) != 45 {
		t.Errorf("%d of 45 have left after %v", len(w.left), w.now.Sub(noon))
	}
	if f, _ := w.roster.Fleet(lab, w.now.Add(time.Minute)); f.Active != 0 || len(f.Started) != 0 {
		t.Errorf("left in mind: %+v", f)
	}
}
