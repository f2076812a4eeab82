// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// newCluster is a Cluster with as many machines, whose kill switches are watched.
func newCluster(t *testing.T, machines int) *world {
	t.Helper()
	w := &world{T: t, now: noon}
	w.WipeGuard = true
	for i := range machines {
		w.tell(i, time.Time{})
	}
	return w
}

// kill turns a kill switch on, as its reconciler tells it before each try.
func (w *world) kill(i int) roster.Verdict {
	w.Tell(box(i), roster.Entry{Cluster: lab, Machine: uid(i), Generation: 2, Killed: true}, w.now)
	return w.Kill(box(i), uid(i), w.now)
}

// kills turns on those of machines from one number up to another, and returns who is served.
func (w *world) kills(from, to int) (served []int) {
	for i := from; i < to; i++ {
		if w.kill(i).Granted {
			served = append(served, i)
		}
	}
	return served
}

// looks has the API server show kill switches that are on, at a generation.
func (w *world) looks(generation int64, machines ...int) roster.Burst {
	return w.shows(roster.Switch{On: true, Generation: generation}, machines...)
}

// shows has the API server show kill switches.
func (w *world) shows(s roster.Switch, machines ...int) roster.Burst {
	shown := map[types.NamespacedName]roster.Switch{}
	for _, i := range machines {
		shown[box(i)] = s
	}
	return w.Confirm(lab, shown, w.now)
}

func numbers(from, to int) (list []int) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

// TestTheFirstOfABurstNeedNoPlanner has 40 kill switches be turned on, while nobody plans.
func TestTheFirstOfABurstNeedNoPlanner(t *testing.T) {
	w := newCluster(t, 40)
	if diff := cmp.Diff(numbers(0, 10), w.kills(0, 40)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	until := noon.Add(30 * time.Second)
	if v := w.kill(39); v.Granted || v.Reason != departure.KillSwitchBurst || v.Message != departure.ExplainBurst(until) || !v.Until.Equal(until) {
		t.Errorf("it is told %+v", v)
	}
	w.now = until
	if diff := cmp.Diff(numbers(0, 40), w.kills(0, 40)); diff != "" {
		t.Errorf("After half a minute all are served, though nobody looks.\n-want, +got:\n%s", diff)
	}
}

// TestALiveLookConfirmsWhomItShows has three lists be read, ten seconds apart.
func TestALiveLookConfirmsWhomItShows(t *testing.T) {
	const older, known, newer = 1, 2, 3
	for name, tc := range map[string]struct {
		reason     string
		generation int64
		shown      []int
		want       []int
	}{
		"All":   {"They are still on.", known, numbers(10, 40), numbers(10, 40)},
		"Newer": {"Somebody has changed something else meanwhile.", newer, numbers(10, 40), numbers(10, 40)},
		"Older": {"What their reconcilers saw is not there yet.", older, numbers(10, 40), nil},
		"Some":  {"The list does not show the others.", known, numbers(10, 20), numbers(10, 20)},
		"None":  {"It shows nobody.", known, nil, nil},
		"Other": {"It is about machines that nobody has told of.", known, numbers(40, 80), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, 40)
			w.kills(0, 40)
			for look := range 3 {
				if got := w.kills(10, 40); look < 3 && got != nil {
					t.Fatalf("after %d looks %v are served", look, got)
				}
				b := w.looks(tc.generation, tc.shown...)
				if want := (30 - len(tc.want)*(look/2)); b.Waiting != want || b.AtOnce != 10 || look == 0 && b.Members != 40 {
					t.Errorf("look %d leaves %+v, want %d waiting", look, b, want)
				}
				w.after(rails.Apart)
			}
			w.after(-rails.Apart)
			if diff := cmp.Diff(tc.want, w.kills(10, 40)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWhoIsShownToBeOffStays has kill switches be turned off again, while the cache is late.
func TestWhoIsShownToBeOffStays(t *testing.T) {
	const older, known, newer, newest = 1, 2, 3, 4
	told := func(generation int64) func(*world) {
		return func(w *world) {
			w.Tell(box(39), roster.Entry{Cluster: lab, Machine: uid(39), Generation: generation, Killed: true}, w.now)
		}
	}
	shown := func(generation int64) func(*world) { return func(w *world) { w.looks(generation, 39) } }
	for name, tc := range map[string]struct {
		reason     string
		generation int64
		then       func(*world)
		want       int // of thirty
	}{
		"Newer":      {"The cache shows for ever what was.", newer, told(known), 0},
		"Same":       {"As new as what its reconciler saw.", known, told(known), 0},
		"Older":      {"What its reconciler saw is not there yet.", older, told(known), 30},
		"OnAgain":    {"Somebody has turned it on anew, and the cache shows that.", newer, told(newest), 1},
		"ShownOn":    {"And a look shows that.", newer, shown(newest), 1},
		"OlderLook":  {"An API server that is behind shows what was.", newer, shown(known), 0},
		"SameAsSeen": {"The cache catches up with an object that is off: it cannot show it to be on.", newer, told(newer), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, 40)
			w.kills(0, 40)
			b := w.shows(roster.Switch{Generation: tc.generation}, numbers(10, 40)...)
			if want := tc.want / 30 * 30; b.Waiting != want {
				t.Errorf("%d wait, want %d", b.Waiting, want)
			}
			w.after(30 * time.Second)
			tc.then(w)
			served := 0
			for i := 10; i < 40; i++ {
				v := w.Kill(box(i), uid(i), w.now)
				if v.Granted {
					served++
				} else if !v.Until.After(w.now) {
					t.Fatalf("who stays is told %+v", v)
				}
			}
			if served != tc.want {
				t.Errorf("%d of those that were shown to be off are served, want %d: %s", served, tc.want, tc.reason)
			}
		})
	}
}

// TestWhoIsConfirmedIsWoken has somebody ask for machines, as two controllers do.
func TestWhoIsConfirmedIsWoken(t *testing.T) {
	w := newCluster(t, 40)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	if err := w.Machines(roster.Itself).Start(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
	w.kills(0, 40)
	for look := range 3 {
		if queue.Len() != 0 {
			t.Fatalf("%d are woken after %d looks", queue.Len(), look)
		}
		w.looks(2, numbers(0, 40)...)
		w.after(rails.Apart)
	}
	if queue.Len() != 30 {
		t.Errorf("%d are woken, and 30 may go", queue.Len())
	}
}

// TestWhoIsKilledLeaves has kill switches use up what others may start.
func TestWhoIsKilledLeaves(t *testing.T) {
	w := newCluster(t, 40)
	w.kills(0, 12)
	w.tell(20, noon)
	f, _ := w.plan()
	if f.Leaving != 10 || f.Active != 30 || len(f.Started) != 10 || len(f.Candidates) != 1 {
		t.Errorf("%+v", f)
	}
	if v := w.Begin(box(20), uid(20), w.now); v.Granted {
		t.Error("the planner does not count those that are killed")
	}
	w.kills(0, 1) // It is told again before its Machine shows anything.
	if f, _ := w.Fleet(lab, w.now); f.Leaving != 10 || len(f.Started) != 10 || w.Departures(lab) != 10 {
		t.Errorf("one is counted twice: %+v", f)
	}
}

// TestWhoWaitsIsNoCandidate has the window of a machine be over whose kill switch waits.
func TestWhoWaitsIsNoCandidate(t *testing.T) {
	w := newCluster(t, 40)
	w.tell(39, noon)
	w.kills(0, 40)
	if f, _ := w.plan(); len(f.Candidates) != 0 {
		t.Errorf("%+v", f.Candidates)
	}
	w.Tell(box(39), roster.Entry{Cluster: lab, Machine: uid(39), Generation: 3, From: noon.Add(time.Second), Lane: departure.Unscheduled}, w.now)
	if v := w.Kill(box(39), uid(39), w.now); v.Granted || v.Reason != "" || !v.Until.After(w.now) {
		t.Errorf("its switch is off, and who asks is told %+v", v)
	}
	if b := w.Burst(lab, w.now); b.Waiting != 29 {
		t.Errorf("one that is turned off is not forgotten: %+v", b)
	}
}

// TestAnOwnerIsNoPartOfABurst has an owner ask for a machine whose kill switch waits.
func TestAnOwnerIsNoPartOfABurst(t *testing.T) {
	w := newCluster(t, 40)
	w.kills(0, 12)
	w.Leave(box(11), uid(11), w.now)
	if b := w.Burst(lab, w.now); b.Waiting != 1 {
		t.Errorf("%+v", b)
	}
}

// TestARemovalThatIsRefusedIsTriedAgain has the API server refuse it for a minute, in the
// middle of another burst.
func TestARemovalThatIsRefusedIsTriedAgain(t *testing.T) {
	w := newCluster(t, 80)
	w.kill(0)
	for i := range 6 {
		w.kills(10*i+1, 10*i+20)
		if !w.kill(0).Granted {
			t.Fatalf("it waits after %s", w.now.Sub(noon))
		}
		w.after(10 * time.Second)
	}
}

// TestWithoutAWipeGuardNobodyWaits has a manager with the flag off, and one without a roster.
func TestWithoutAWipeGuardNobodyWaits(t *testing.T) {
	w := newCluster(t, 40)
	w.WipeGuard = false
	if got := w.kills(0, 40); len(got) != 40 {
		t.Errorf("%d are served", len(got))
	}
	if b := w.Burst(lab, w.now); b != (roster.Burst{}) {
		t.Errorf("%+v", b)
	}
	var none *roster.Roster
	if !none.Kill(box(0), uid(0), noon).Granted {
		t.Error("without a roster it waits")
	}
}

// TestALateWorkerShortensNobodysWait has one ask that read its clock before the others.
func TestALateWorkerShortensNobodysWait(t *testing.T) {
	w := newCluster(t, 40)
	w.kills(0, 40)
	w.after(-9 * time.Second)
	w.kill(20)
	w.after(9*time.Second + 30*time.Second - 1)
	if got := w.kills(10, 40); got != nil {
		t.Errorf("%v are served too soon", got)
	}
	w.after(-time.Hour) // A clock that was set back keeps nobody for longer than that.
	w.kill(20)
	w.after(30 * time.Second)
	if got := w.kills(10, 40); len(got) != 30 {
		t.Errorf("%v are served", got)
	}
}

// TestAnotherOfTheNameIsAskedAnew has a machine be served, and one of its name come at once
// whose kill switch is on.
func TestAnotherOfTheNameIsAskedAnew(t *testing.T) {
	for name, e := range map[string]roster.Entry{
		"Machine":          {Scheduled: "first", Machine: "another"},
		"ScheduledMachine": {Scheduled: "second", Machine: uid(0)},
		"Both":             {Scheduled: "second", Machine: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, 40)
			first := roster.Entry{Cluster: lab, Scheduled: "first", Machine: uid(0), Generation: 2, Killed: true}
			w.Tell(box(0), first, w.now)
			if !w.Kill(box(0), uid(0), w.now).Granted {
				t.Fatal("the first waits")
			}
			w.kills(1, 10)
			e.Cluster, e.Generation, e.Killed = lab, 1, true
			w.Tell(box(0), e, w.now)
			if v := w.Kill(box(0), e.Machine, w.now); v.Reason != departure.KillSwitchBurst {
				t.Errorf("it has inherited %+v", v)
			}
			if e.Machine != uid(0) && w.Kill(box(0), uid(0), w.now).Granted {
				t.Error("who asks for the one before is told of this one")
			}
			w.shows(roster.Switch{Scheduled: "first", Generation: 3}, 0)
			if b := w.Burst(lab, w.now); b.Waiting != 1 && e.Scheduled != "first" {
				t.Errorf("what is shown of the one before counts: %+v", b)
			}
		})
	}
}

// TestKillSwitchesOfOneClusterDelayNoOther has a burst in another.
func TestKillSwitchesOfOneClusterDelayNoOther(t *testing.T) {
	w := newCluster(t, 40)
	w.kills(0, 40)
	other := roster.Entry{Cluster: types.NamespacedName{Namespace: "farm", Name: "other"}, Machine: "another", Killed: true}
	w.Tell(box(99), other, w.now)
	if !w.Kill(box(99), "another", w.now).Granted {
		t.Error("it waits")
	}
}

// TestTheTextSaysWhen has an instant that is no whole second: nobody is told too early a one.
func TestTheTextSaysWhen(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "at 2026-03-02T12:00:00Z at", 1: "at 2026-03-02T12:00:01Z at", time.Second: "at 2026-03-02T12:00:01Z at"} {
		if got := departure.ExplainBurst(noon.Add(after)); !strings.Contains(got, want) {
			t.Errorf("%s is told as %q", after, got)
		}
	}
}

// TestBurstsOfAnyKind has people turn kill switches on and off, owners come, machines leave and
// looks fail. No more are served within ten seconds than may be, but who has waited for half a
// minute is, and nobody who was served is told to wait.
func TestBurstsOfAnyKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const machines = 60
		var r roster.Roster
		r.WipeGuard = true
		now := noon
		on, served := map[int]time.Time{}, map[int]bool{}
		atOnce := map[int]time.Time{}
		tell := func(i int, e roster.Entry) {
			e.Cluster, e.Machine = lab, uid(i)
			r.Tell(box(i), e, now)
		}
		ask := func(t *rapid.T, i int) {
			if _, is := on[i]; !is {
				on[i] = now
			}
			tell(i, roster.Entry{Killed: true})
			v, waited := r.Kill(box(i), uid(i), now), now.Sub(on[i])
			switch {
			case v.Granted && waited == 0 && !served[i]:
				atOnce[i] = now
			case v.Granted && !served[i] && waited < 20*time.Second:
				t.Fatalf("box %d is served after %s", i, waited)
			case !v.Granted && (served[i] || waited >= 30*time.Second):
				t.Fatalf("box %d waits after %s, served before %v", i, waited, served[i])
			case !v.Granted && !v.Until.Equal(on[i].Add(30*time.Second)):
				t.Fatalf("box %d is on since %s and told to ask again at %s", i, on[i], v.Until)
			}
			served[i] = v.Granted
			recent := departure.Recent(slices.Collect(maps.Values(atOnce)), now)
			if len(recent) > 10 {
				t.Fatalf("%d are served at once", len(recent))
			}
		}
		for i := range machines {
			tell(i, roster.Entry{})
		}
		one := rapid.IntRange(0, machines-1)
		t.Repeat(map[string]func(*rapid.T){
			"on": func(t *rapid.T) {
				for _, i := range rapid.SliceOfN(one, 1, 20).Draw(t, "machines") {
					ask(t, i)
				}
			},
			"off": func(t *rapid.T) {
				if i := one.Draw(t, "machine"); !served[i] { // Else it has started to leave.
					tell(i, roster.Entry{})
					r.Burst(lab, now) // The planner is woken.
					delete(on, i)
				}
			},
			"look": func(*rapid.T) {
				shown := map[types.NamespacedName]roster.Switch{}
				for i := range on {
					shown[box(i)] = roster.Switch{On: true}
				}
				r.Confirm(lab, shown, now)
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 12_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) {},
		})
	})
}
