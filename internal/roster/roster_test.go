// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

var (
	noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	lab  = client.ObjectKey{Namespace: "farm", Name: "lab"}
)

// one is a limit that admits one machine of a small Cluster in ten seconds.
var one = departure.Limits{Cap: 50_000}

func box(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "farm", Name: fmt.Sprintf("box-%d", i)}
}

func uid(i int) types.UID { return types.UID(fmt.Sprint("uid-", i)) }

// A world is a roster with its planner, in fake time.
type world struct {
	*testing.T
	roster.Roster
	now time.Time
}

// plan runs the planner once, and returns the facts after that.
func (w *world) plan() (departure.Fleet, time.Time) {
	w.Helper()
	f, _ := w.Fleet(lab, w.now)
	w.Publish(lab, departure.Decide(f, one), w.now)
	return w.Fleet(lab, w.now)
}

// report reports a machine that is due from the given instant on.
func (w *world) report(i int, from time.Time) {
	w.Report(box(i), roster.Entry{Cluster: lab, Machine: uid(i), From: from, Lane: departure.Unscheduled, Priority: int32(i)}, w.now)
}

// granted returns the machines that may start now.
func (w *world) granted(n int) (names []int) {
	for i := range n {
		if w.RequestGrant(box(i), uid(i), w.now).Granted {
			names = append(names, i)
		}
	}
	return names
}

func (w *world) after(d time.Duration) { w.now = w.now.Add(d) }

// left reports that a machine has started to leave.
func (w *world) left(i int) {
	w.Report(box(i), roster.Entry{Cluster: lab, Machine: uid(i), Left: w.now.Truncate(time.Second)}, w.now)
}

func TestWithoutARosterEverybodyMayLeave(t *testing.T) {
	var none *roster.Roster
	none.Report(box(0), roster.Entry{}, noon)
	none.RecordExemptStart(box(0), uid(0), noon)
	none.Forget(box(0), noon)
	none.FinishAttempt(box(0), uid(0), noon)
	if !none.RequestGrant(box(0), uid(0), noon).Granted {
		t.Error("nobody plans, and nobody may leave")
	}
}

func TestWhoIsToldAheadIsACandidateInTime(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon.Add(time.Hour))
	f, next := w.plan()
	if f.Active != 1 || len(f.Candidates) != 0 || !next.Equal(noon.Add(time.Hour)) {
		t.Errorf("facts %+v, next %v", f, next)
	}
	if v := w.RequestGrant(box(0), uid(0), w.now); v.Granted {
		t.Error("may leave an hour early")
	}
	w.after(time.Hour)
	if f, _ := w.Fleet(lab, w.now); len(f.Candidates) != 1 || !f.Candidates[0].Since.Equal(w.now) {
		t.Errorf("candidates %+v", f.Candidates)
	}
	w.plan()
	if !w.RequestGrant(box(0), uid(0), w.now).Granted {
		t.Error("may not leave")
	}
}

// TestOneStartsAtATime reports five machines that are due at the same time.
func TestOneStartsAtATime(t *testing.T) {
	w := &world{T: t, now: noon}
	for i := range 5 {
		w.report(i, noon)
	}
	if got := w.granted(5); got != nil {
		t.Errorf("%v may start before anybody has planned", got)
	}
	for i := range 5 {
		w.plan()
		if got := w.granted(5); len(got) != i+1 || got[i] != i { // A granted machine keeps its grant.
			t.Fatalf("at %v %v may leave", w.now, got)
		}
		w.left(i)
		w.after(departure.Window - time.Second)
		w.plan()
		if got := w.granted(5); len(got) != i+1 {
			t.Fatalf("at %v %v may leave", w.now, got)
		}
		w.after(time.Second)
	}
}

func TestWhoWaitsKnowsWhy(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.report(1, noon)
	if v := w.RequestGrant(box(1), uid(1), w.now); v != (roster.Verdict{}) {
		t.Errorf("before anybody has planned: %+v", v)
	}
	w.plan()
	if v := w.RequestGrant(box(1), uid(1), w.now); v.Granted || v.Reason != departure.BlastRadiusCap || v.Message == "" {
		t.Errorf("%+v", v)
	}
}

// TestAGrantEndsThatNobodyUses never reconciles the first machine.
func TestAGrantEndsThatNobodyUses(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.report(1, noon)
	_, next := w.plan()
	if !next.Equal(noon.Add(departure.Window)) {
		t.Errorf("next look %v", next)
	}
	w.after(departure.Window)
	if w.RequestGrant(box(0), uid(0), w.now).Granted {
		t.Error("a grant lasts for ever")
	}
	_, next = w.plan()
	if got := w.granted(2); len(got) != 1 || got[0] != 1 {
		t.Errorf("%v may start: who does not come must not keep others", got)
	}
	if !next.Equal(noon.Add(2 * departure.Window)) {
		t.Errorf("next look %v", next)
	}
	w.left(1)
	w.after(departure.Window)
	w.plan()
	if got := w.granted(1); len(got) != 1 {
		t.Error("it is not given again")
	}
}

// TestWhoTriesInVainKeepsNobody makes every attempt of the first machine fail.
func TestWhoTriesInVainKeepsNobody(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.report(1, noon)
	for second := range 40 {
		w.plan()
		w.RequestGrant(box(0), uid(0), w.now)
		if w.RequestGrant(box(1), uid(1), w.now).Granted {
			return
		}
		w.after(time.Second)
		if second == 39 {
			t.Error("the second machine never starts")
		}
	}
}

// TestManyWhoTryInVainKeepNobody makes the attempts of all machines but the last fail.
func TestManyWhoTryInVainKeepNobody(t *testing.T) {
	w := &world{T: t, now: noon}
	const last = 12
	for i := range last + 1 {
		w.report(i, noon)
	}
	for !w.now.After(noon.Add(10 * time.Minute)) {
		w.plan()
		for i := range last {
			w.RequestGrant(box(i), uid(i), w.now)
			w.FinishAttempt(box(i), uid(i), w.now)
		}
		if w.RequestGrant(box(last), uid(last), w.now).Granted {
			return
		}
		w.after(time.Second)
	}
	t.Error("those who are refused take all turns")
}

// TestAStartCountsFromItsAnswer delays the response of the API server and reconciles meanwhile.
func TestAStartCountsFromItsAnswer(t *testing.T) {
	const slow = 7 * time.Second
	for name, seen := range map[string]func(*world){
		"Answered": func(w *world) { w.FinishAttempt(box(0), uid(0), w.now); w.left(0) },
		"Seen":     func(w *world) { w.left(0); w.FinishAttempt(box(0), uid(0), w.now) },
		"Unseen":   func(w *world) { w.FinishAttempt(box(0), uid(0), w.now) },
		// The window is extended while the cache does not show the deletion of the Machine.
		"Undone":                func(w *world) { w.FinishAttempt(box(0), uid(0), w.now); w.report(0, time.Time{}) },
		"UndoneBeforeTheAnswer": func(w *world) { w.report(0, time.Time{}) },
		"Forgotten":             func(w *world) { w.Forget(box(0), w.now) },
	} {
		w := &world{T: t, now: noon}
		w.report(0, noon)
		w.report(1, noon)
		w.plan()
		if got := w.granted(2); len(got) != 1 || got[0] != 0 {
			t.Fatalf("%s: %v may start", name, got)
		}
		w.after(slow)
		w.plan()
		seen(w)
		w.after(departure.Window - 1)
		w.plan()
		if w.RequestGrant(box(1), uid(1), w.now).Granted {
			t.Errorf("%s: two start within ten seconds", name)
		}
		w.after(1)
		w.plan()
		if !w.RequestGrant(box(1), uid(1), w.now).Granted {
			t.Errorf("%s: the second does not start in its turn", name)
		}
	}
}

// TestAStartCountsWhenItIsMade starts a granted machine nine seconds late. The next one waits ten seconds from
// then.
func TestAStartCountsWhenItIsMade(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.report(1, noon)
	w.plan()
	w.after(9 * time.Second)
	if !w.RequestGrant(box(0), uid(0), w.now).Granted {
		t.Fatal("may not start")
	}
	w.left(0)
	w.after(9 * time.Second)
	w.plan()
	if w.RequestGrant(box(1), uid(1), w.now).Granted {
		t.Error("two start within ten seconds")
	}
	w.after(time.Second)
	w.plan()
	if !w.RequestGrant(box(1), uid(1), w.now).Granted {
		t.Error("it is kept for longer than the limit asks for")
	}
}

// TestOwnersCount starts an urgent departure, which needs no grant. No other machine may start.
func TestOwnersCount(t *testing.T) {
	for name, leaves := range map[string]func(*world){
		"Told":         func(w *world) { w.RecordExemptStart(box(0), uid(0), w.now) },
		"ToldTwice":    func(w *world) { w.RecordExemptStart(box(0), uid(0), w.now); w.left(0) },
		"SeenLeaving":  func(w *world) { w.left(0) },
		"SeenGone":     func(w *world) { w.Report(box(0), roster.Entry{Cluster: lab}, w.now) },
		"AnotherComes": func(w *world) { w.Report(box(0), roster.Entry{Cluster: lab, Machine: "new"}, w.now) },
	} {
		w := &world{T: t, now: noon}
		for i := range 3 {
			w.report(i, time.Time{})
		}
		leaves(w)
		w.report(1, noon)
		f, _ := w.plan()
		if len(f.Started) != 1 || w.RequestGrant(box(1), uid(1), w.now).Granted {
			t.Errorf("%s: %d departures count", name, len(f.Started))
		}
		w.after(departure.Window)
		w.plan()
		if !w.RequestGrant(box(1), uid(1), w.now).Granted {
			t.Errorf("%s: it counts for ever", name)
		}
	}
}

func TestWhoIsNotToLeaveAnyMoreMayNot(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.plan()
	w.report(0, noon.Add(time.Hour))
	if w.RequestGrant(box(0), uid(0), w.now).Granted {
		t.Error("its window was extended, and it may leave")
	}
	w.report(0, noon)
	w.Report(box(0), roster.Entry{Cluster: lab, Machine: "another"}, w.now)
	if w.RequestGrant(box(0), uid(0), w.now).Granted || w.RequestGrant(box(0), "another", w.now).Granted {
		t.Error("another Machine may leave for it")
	}
}

func TestItsTurnIsKept(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.after(time.Second)
	w.report(0, w.now)
	if f, _ := w.Fleet(lab, w.now); !f.Candidates[0].Since.Equal(noon) {
		t.Errorf("it waits since %v", f.Candidates[0].Since)
	}
}

// TestACacheThatIsLateTellsNothing reports an older generation of an object after a newer one.
func TestACacheThatIsLateTellsNothing(t *testing.T) {
	known := roster.Entry{Cluster: lab, Scheduled: "first", Machine: uid(0), Generation: 2, Priority: 7}
	for name, tc := range map[string]struct {
		reason string
		change func(*roster.Entry)
		want   func(*roster.Entry)
	}{
		"Leaves":  {"Its window is open again.", func(e *roster.Entry) { e.From, e.Generation = noon, 1 }, func(*roster.Entry) {}},
		"Left":    {"What its Machine shows has happened.", func(e *roster.Entry) { e.Left, e.Priority, e.Generation = noon, 1, 1 }, func(e *roster.Entry) { e.Left = noon }},
		"Same":    {"Time has passed.", func(e *roster.Entry) { e.From = noon }, func(e *roster.Entry) { e.From = noon }},
		"Another": {"It was made anew.", func(e *roster.Entry) { e.Scheduled, e.From, e.Generation = "second", noon, 1 }, func(e *roster.Entry) { e.Scheduled, e.From, e.Generation = "second", noon, 1 }},
	} {
		w := &world{T: t, now: noon}
		w.Report(box(0), known, w.now)
		e, want := known, known
		tc.change(&e)
		tc.want(&want)
		w.Report(box(0), e, w.now)
		if got, _ := w.LastReport(box(0)); got != want {
			t.Errorf("%s: %s\ntold %+v, want %+v", name, tc.reason, got, want)
		}
	}
}

func TestNobodyIsKeptInMind(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	w.Forget(box(0), w.now)
	if f, next := w.Fleet(lab, w.now); f.Active != 0 || len(f.Started) != 0 || !next.IsZero() {
		t.Errorf("%+v, next %v", f, next)
	}
	w.report(0, noon)
	w.Report(box(0), roster.Entry{Cluster: client.ObjectKey{Namespace: "farm", Name: "other"}, Machine: uid(0)}, w.now)
	if f, _ := w.Fleet(lab, w.now); f.Active != 0 {
		t.Errorf("it is in two Clusters: %+v", f)
	}
}

// TestThePlannerIsWokenForAll checks that Wake enqueues every Cluster.
func TestThePlannerIsWokenForAll(t *testing.T) {
	w := &world{T: t, now: noon}
	w.Wake() // No cluster exists yet.
	w.report(0, time.Time{})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	if err := w.Clusters().Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if queue.Len() != 1 {
			t.Fatalf("%d Clusters are woken", queue.Len())
		}
		req, _ := queue.Get()
		queue.Done(req)
		w.Wake()
	}
}

// TestAMachineIsOneUnderTwoNames deletes the ScheduledMachines of machines, and lets others adopt the machines.
func TestAMachineIsOneUnderTwoNames(t *testing.T) {
	for name, tc := range map[string]struct {
		// begins reports that the machine has started to leave, leaves that the start was reported.
		begins, leaves bool
		started        int
	}{
		"Waits": {}, "Begins": {begins: true, started: 1}, "Leaves": {begins: true, leaves: true, started: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{T: t, now: noon}
			own := roster.OrphanName(box(0))
			orphan := roster.Entry{Cluster: lab, Machine: "it", From: noon, Lane: departure.Unscheduled}
			adopted := roster.Entry{Cluster: lab, Machine: "it", Scheduled: "new", Generation: 1, From: noon.Add(time.Second), Lane: departure.Unscheduled}
			w.Report(box(0), roster.Entry{Cluster: lab, Machine: "it", Scheduled: "old", Generation: 7}, w.now)
			w.Report(own, orphan, w.now)
			if tc.begins {
				w.plan()
				if v := w.RequestGrant(own, "it", w.now); !v.Granted {
					t.Fatalf("it may not start: %+v", v)
				}
				w.FinishAttempt(own, "it", w.now)
			}
			if tc.leaves {
				orphan.Left = w.now
				w.Report(own, orphan, w.now)
				adopted.Left = w.now
			}
			w.now = w.now.Add(2 * time.Second)
			w.Report(box(0), adopted, w.now)
			w.Forget(own, w.now)
			f, _ := w.Fleet(lab, w.now)
			if f.Active+f.Departed != 1 || len(f.Started) != tc.started {
				t.Errorf("one machine is %+v", f)
			}
			if e, told := w.LastReport(box(0)); !told || e.Scheduled != "new" || tc.started == 0 && !e.From.Equal(noon) {
				t.Errorf("it is told of as %+v, and has waited since %v", e, noon)
			}
		})
	}
}

// TestAnOrphanIsNobodyElse checks that a ScheduledMachine with the name of an orphan is another member.
func TestAnOrphanIsNobodyElse(t *testing.T) {
	w := &world{T: t, now: noon}
	w.report(0, noon)
	own := roster.OrphanName(box(0))
	w.Report(own, roster.Entry{Cluster: lab, Machine: "orphan", From: noon, Lane: departure.Unscheduled}, w.now)
	scheduled := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer scheduled.ShutDown()
	if err := w.Machines(roster.RequestFor).Start(t.Context(), scheduled); err != nil {
		t.Fatal(err)
	}
	if f, _ := w.plan(); f.Active+f.Departed != 2 {
		t.Errorf("two machines are %+v", f)
	}
	if scheduled.Len() != 1 {
		t.Errorf("%d ScheduledMachines are woken, and there is one", scheduled.Len())
	}
	if machine, ok := roster.ParseOrphanName(own); !ok || machine != box(0) || !roster.IsOrphan(own.String()) || roster.IsOrphan(box(0).String()) {
		t.Errorf("%s is told as that of %s", own, machine)
	}
	w.RecordGone(own, w.now)
	if _, told := w.LastReport(own); told || w.Departures(lab) != 1 {
		t.Errorf("it has left: %d departures", w.Departures(lab))
	}
}
