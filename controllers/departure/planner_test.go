// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestANewLeaderWarmsUp makes machines due while a manager becomes leader.
func TestANewLeaderWarmsUp(t *testing.T) {
	const s = time.Second
	w := newWorld(t, 40)
	w.leaves(v1alpha1.ScheduledLane, 0)
	w.leaves(v1alpha1.UnscheduledLane, 1)
	for _, step := range []struct {
		reason string
		at     time.Duration
		next   time.Duration
		began  []int
		waits  departurecap.Reason
	}{
		{"What the leader before let start is in no list.", 0, 10 * s, nil, v1alpha1.WarmUpReason},
		{"For a whole window.", 10*s - 1, 1, nil, v1alpha1.WarmUpReason},
		{"An end that was announced needs no more; the leader before may still believe to lead.", 10 * s, 5 * s, []int{0}, v1alpha1.WarmUpReason},
		{"Now it cannot.", 15 * s, 5 * s, []int{1}, ""},
	} {
		w.clock.SetTime(noon.Add(step.at))
		next := max(w.plan(), 1)
		began := w.begin()
		if diff := cmp.Diff(step.began, began); diff != "" || departurecap.Reason(w.waits(1).Reason) != step.waits {
			t.Errorf("after %s the other one waits for %q: %s\n%s", step.at, w.waits(1).Reason, step.reason, diff)
		}
		if step.waits != "" && next != max(step.next, time.Millisecond) {
			t.Errorf("after %s the planner asks again in %s, want %s: %s", step.at, next, step.next, step.reason)
		}
	}
}

// TestWithoutLimitsNoMachineWaits uses a manager without limits.
func TestWithoutLimitsNoMachineWaits(t *testing.T) {
	w := newWorld(t, 40)
	w.r.Cap = 0
	for i := range 40 {
		w.leaves(v1alpha1.UnscheduledLane, i)
	}
	if next := w.plan(); len(w.begin()) != 40 || next > departurecap.Window {
		t.Errorf("not all leave at once, or the planner asks again in %s", next)
	}
}

// TestARestartKeepsTheCap restarts the manager while machines leave, five at a time.
func TestARestartKeepsTheCap(t *testing.T) {
	const most = 5
	w := newWorld(t, 100)
	w.warm()
	for i := range 60 {
		w.leaves(v1alpha1.UnscheduledLane, i)
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
		if d := starts[i].Sub(starts[i-most]); d < departurecap.Window {
			t.Errorf("%d start within %s", most+1, d)
		}
	}
}

// TestAnOwnerIsNotPlanned starts an urgent departure during the warm-up.
func TestAnOwnerIsNotPlanned(t *testing.T) {
	w := newWorld(t, 44)
	w.reclaim(0)
	w.plan()
	w.after(lease - 6*time.Second)
	w.leaves(v1alpha1.ScheduledLane, 1, 2)
	w.after(time.Second)
	if w.plan(); len(w.begin()) != 2 {
		t.Error("an owner's machine that left long ago counts")
	}
}

// TestAnAdmissionExpires admits a machine whose deletion fails. Its hooks are back then, and it comes last.
func TestAnAdmissionExpires(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.undeletable = errors.New("a webhook is down")
	w.leaves(v1alpha1.UnscheduledLane, 3)
	if next := w.plan(); len(w.admitted()) != 1 || next != time.Second {
		t.Fatalf("%v are admitted, the planner looks again in %s", w.admitted(), next)
	}
	if _, held := w.machine(3).Annotations[v1alpha1.PreDrainHookAnnotation]; held {
		t.Error("its hooks delay Cluster API by a second")
	}
	w.leaves(v1alpha1.UnscheduledLane, 5)
	w.after(departurecap.Window)
	w.plan()
	m := w.machine(3)
	if state, d := children.StateOf(m, w.clock.Now()); state != children.Requested || d.ExpiredAt.IsZero() || m.Annotations[v1alpha1.PreDrainHookAnnotation] == "" {
		t.Errorf("the record is %+v, the annotations %v", d, m.Annotations)
	}
	failed := v1alpha1.DepartureWaiting{Reason: v1alpha1.DeletionFailed, Message: "deleting Machine " + machineOf(3) + ": a webhook is down"}
	w.wantWaiting(3, failed)
	w.undeletable = nil
	if w.plan(); len(w.begin()) != 0 {
		t.Error("a delete call that was sent before may still arrive")
	}
	w.after(departurecap.Window)
	if w.plan(); !slices.Equal(w.begin(), []int{5}) {
		t.Error("the machine whose admission expired does not come last")
	}
	w.wantWaiting(3, failed)
}

func (w *world) wantWaiting(i int, want v1alpha1.DepartureWaiting) {
	w.Helper()
	_, d := children.StateOf(w.machine(i), w.clock.Now())
	if diff := cmp.Diff(&want, d.Waiting); diff != "" {
		w.Errorf("-want, +got:\n%s", diff)
	}
}

// TestAMachineIsDeletedOnce uses a cache that shows neither the admission nor the deletion.
func TestAMachineIsDeletedOnce(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3, 4)
	w.stale = w.list()
	if w.plan(); !slices.Equal(w.begin(), []int{3}) {
		t.Fatal("it does not leave")
	}
	w.undeletable = errors.New("it is deleted already")
	w.after(departurecap.Window - time.Second)
	if w.plan(); len(w.begin()) != 0 {
		t.Error("another one leaves")
	}
}

// TestAnotherAdmissionLeadsToNoDeletion writes admissions by hand, and by the leader before.
func TestAnotherAdmissionLeadsToNoDeletion(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	for i := range 5 {
		w.change(i, func(m *clusterv1.Machine) {
			children.SetDeparture(m, v1alpha1.NewDeparture(v1alpha1.WindowClosed, w.clock.Now(), "forged"))
		})
	}
	began := w.run(24 * time.Second)
	if len(began) > 1 {
		t.Errorf("%v leave within 24 s", began)
	}
}

// TestARefusedAdmissionCounts has an API server that refuses all patches.
func TestARefusedAdmissionCounts(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3, 4)
	w.refused, w.slow = errors.New("a webhook is down"), 2*time.Second
	if next := w.plan(); next != time.Second {
		t.Errorf("the planner looks again %s after a slow run", next)
	}
	w.refused, w.slow = nil, 0
	w.after(time.Second)
	if w.plan(); len(w.begin()) != 0 {
		t.Error("the admission may have been written")
	}
	w.after(departurecap.Window)
	if w.plan(); !slices.Equal(w.begin(), []int{4}) {
		t.Error("the machine whose admission was refused does not come last")
	}
}

// TestAConflictIsTriedAgain has a cache without the latest change of a Machine's status, which starts no run.
func TestAConflictIsTriedAgain(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3)
	w.stale = w.list()
	w.change(3, func(m *clusterv1.Machine) { m.Status.Phase = "Running" })
	if next := w.plan(); next != time.Second || len(w.begin()) != 0 {
		t.Errorf("the planner looks again in %s", next)
	}
	w.stale = nil
	w.after(time.Second)
	if w.plan(); !slices.Equal(w.begin(), []int{3}) {
		t.Error("it does not leave")
	}
}

// TestNothingIsWrittenWhilePaused pauses a Cluster while one machine is admitted and another waits.
func TestNothingIsWrittenWhilePaused(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.undeletable = errors.New("a webhook is down")
	w.leaves(v1alpha1.UnscheduledLane, 3, 4)
	w.plan()
	c := &clusterv1.Cluster{}
	w.must(w.Get(w.Context(), lab, c))
	c.Spec.Paused = new(true)
	w.must(w.Update(w.Context(), c))
	before := w.list()
	for range 3 {
		w.after(departurecap.Window)
		w.plan()
	}
	for i, m := range w.list() {
		if m.ResourceVersion != before[i].ResourceVersion {
			t.Errorf("Machine %s is written: %v", m.Name, m.Annotations)
		}
	}
}

// TestAnAnnouncedEndKeepsItsPlace ends two windows. The machine that has requested its departure comes last in the order.
func TestAnAnnouncedEndKeepsItsPlace(t *testing.T) {
	w := newWorld(t, 2)
	w.warm()
	end := metav1.NewTime(w.clock.Now())
	sm := &v1alpha1.ScheduledMachine{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: box(0)}, sm))
	sm.Spec.Priority, sm.Status.NextCleanup, sm.Status.NextCleanupAnnouncedTime, sm.Status.ObservedGeneration = new(int32(1)), &end, new(metav1.NewTime(noon.Add(-time.Hour))), sm.Generation
	w.must(w.Update(w.Context(), sm))
	w.leaves(v1alpha1.ScheduledLane, 1)
	const late = 3 * time.Second
	w.after(late)
	if next := w.plan(); len(w.begin()) != 0 || next != departurecap.Window-late {
		t.Errorf("it is admitted before a less important machine, or the planner looks again in %s", next)
	}
	w.after(departurecap.Window - late)
	if w.plan(); len(w.begin()) != 1 {
		t.Error("it waits for a machine that does not request its departure")
	}
}

// TestAMachineOfAnotherManagerHasNotLeft moves the only other machine to another manager. It is no start.
func TestAMachineOfAnotherManagerHasNotLeft(t *testing.T) {
	w := newWorld(t, 2)
	w.filter = "ours"
	w.label(0, w.filter)
	w.label(1, w.filter)
	w.start()
	w.warm()
	w.label(0, "theirs")
	w.leaves(v1alpha1.UnscheduledLane, 1)
	if w.plan(); !slices.Equal(w.begin(), []int{1}) {
		t.Errorf("it waits for a machine that stays: %+v", w.waits(1))
	}
}

// TestALaneByHandIsNone requests departures in lanes that need no admission, or that do not exist.
func TestALaneByHandIsNone(t *testing.T) {
	for _, lane := range []v1alpha1.DepartureLane{v1alpha1.ExemptLane, "fast"} {
		w := newWorld(t, 10)
		w.warm()
		w.leaves(lane, 3, 4)
		w.plan()
		if d, _ := children.DepartureOf(w.machine(3), w.clock.Now()); d.Lane != v1alpha1.UnscheduledLane || len(w.begin()) != 1 {
			t.Errorf("%s: the record is %+v", lane, d)
		}
	}
}

// TestADeletionIsTriedOnceASecond starts the planner often, as the events of other Machines do. The first deletion fails.
func TestADeletionIsTriedOnceASecond(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.undeletable = errors.New("a webhook is down")
	w.leaves(v1alpha1.UnscheduledLane, 3)
	for range 5 {
		w.plan()
	}
	if w.deletions != 1 {
		t.Errorf("%d delete calls in one second", w.deletions)
	}
	w.undeletable = nil
	w.after(time.Second)
	if w.plan(); !slices.Equal(w.begin(), []int{3}) {
		t.Error("it is not deleted")
	}
}

// TestAnAnswerOfAnotherLeaderStays changes the answer on the record, as a second leader does.
func TestAnAnswerOfAnotherLeaderStays(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3, 4)
	w.plan()
	other := v1alpha1.DepartureWaiting{Reason: v1alpha1.WarmUpReason, Message: "another leader"}
	w.change(4, func(m *clusterv1.Machine) {
		_, d := children.StateOf(m, w.clock.Now())
		d.Waiting = &other
		children.SetDeparture(m, d)
	})
	if w.plan(); w.waits(4) != other {
		t.Errorf("the leaders replace each other's answer: %+v", w.waits(4))
	}
}

// TestAKilledMachineIsNotAnswered turns on the kill switch of a machine that has requested its departure.
func TestAKilledMachineIsNotAnswered(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3)
	sm := &v1alpha1.ScheduledMachine{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: box(3)}, sm))
	sm.Spec.KillSwitch = true
	w.must(w.Update(w.Context(), sm))
	if w.plan(); len(w.begin()) != 0 {
		t.Error("the planner deletes a machine that another controller removes")
	}
}

// TestAPausedMachineIsHeld pauses one Machine of two that have requested their departures.
func TestAPausedMachineIsHeld(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3, 4)
	w.change(3, func(m *clusterv1.Machine) { m.Annotations[clusterv1.PausedAnnotation] = "" })
	if w.plan(); !slices.Equal(w.begin(), []int{4}) {
		t.Error("a paused machine leaves, or takes the turn of another")
	}
	if w.waits(3).Reason != v1alpha1.MachinePausedReason {
		t.Errorf("its record does not show the pause: %+v", w.waits(3))
	}
	patches := w.patches
	w.after(departurecap.Window)
	if w.plan(); w.patches != patches {
		t.Error("the same answer is written again")
	}
	w.change(3, func(m *clusterv1.Machine) { delete(m.Annotations, clusterv1.PausedAnnotation) })
	if w.plan(); !slices.Equal(w.begin(), []int{3}) {
		t.Error("it does not leave after the pause")
	}
}

// TestADryRunWritesNothing starts a manager in dry run on requests of an earlier one.
func TestADryRunWritesNothing(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3)
	gate := &actuate.Gate{DryRun: true}
	w.r.Actuate = actuate.NewGated(gate, testenv.Gated(gate.Transport, w.Client))
	if next := w.plan(); len(w.admitted()) != 0 || next != 0 {
		t.Errorf("%v are admitted, the planner looks again in %s", w.admitted(), next)
	}
	if counted := w.r.StartedElsewhere(w.clock.Now()); len(counted) != 0 {
		t.Errorf("another Cluster counts %v", counted)
	}
}

// TestStartsOfAClusterWithoutMachinesCount has the only machine of a Cluster leave, and end at once.
func TestStartsOfAClusterWithoutMachinesCount(t *testing.T) {
	w := newWorld(t, 1)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 0)
	w.plan()
	w.begin()
	m := w.machine(0)
	m.Finalizers = nil
	w.must(w.Update(w.Context(), m))
	if next := w.plan(); next != departurecap.MaxWait {
		t.Errorf("the planner forgets the Cluster in %s", next)
	}
	if counted := w.r.StartedElsewhere(w.clock.Now()); len(counted) != 1 {
		t.Errorf("another Cluster counts %v", counted)
	}
}

// TestDeparturesAreDatedAfterARestart has 20 machines that have drained for longer than departurecap.MaxWait. They no
// longer raise the limit of a shared window end.
func TestDeparturesAreDatedAfterARestart(t *testing.T) {
	w := newWorld(t, 40)
	for i := range 20 {
		w.change(i, func(m *clusterv1.Machine) {
			children.SetDeparture(m, v1alpha1.NewDeparture(v1alpha1.WindowClosed, w.clock.Now(), "a"))
		})
		w.must(w.Delete(w.Context(), w.machine(i)))
		w.begun[i] = true
	}
	w.after(departurecap.MaxWait)
	w.r = w.newPlanner()
	w.warm()
	w.leaves(v1alpha1.ScheduledLane, 30, 31, 32)
	if w.plan(); len(w.begin()) != 1 {
		t.Error("machines that left long ago raise the limit")
	}
}

// TestStartsOfASlowPlanCountForOthers has the admissions of one Cluster take longer than a Window, while another Cluster is
// planned.
func TestStartsOfASlowPlanCountForOthers(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3)
	w.slow = 8 * time.Second
	w.patching = func() {
		if counted := w.r.StartedElsewhere(w.clock.Now().Add(departurecap.Window)); len(counted) != 1 {
			t.Errorf("while it is written, another Cluster counts %v", counted)
		}
	}
	w.plan()
	if counted := w.r.StartedElsewhere(w.clock.Now()); len(counted) != 1 || !counted[0].Equal(w.clock.Now()) {
		t.Errorf("another Cluster counts %v, now is %v", counted, w.clock.Now())
	}
	w.after(departurecap.Window)
	if counted := w.r.StartedElsewhere(w.clock.Now()); len(counted) != 0 {
		t.Errorf("another Cluster counts %v a window later", counted)
	}
}

// TestAClusterFromAnotherManagerWarmsUp labels the ScheduledMachines of a Cluster for a manager that has been leader for
// long. A machine that started to leave a moment before, under another manager, is gone.
func TestAClusterFromAnotherManagerWarmsUp(t *testing.T) {
	w := newWorld(t, 2)
	w.filter = "ours"
	w.label(0, "theirs")
	w.label(1, "theirs")
	w.start()
	w.warm()
	w.after(time.Hour)
	w.leaves(v1alpha1.ScheduledLane, 1)
	w.label(0, w.filter)
	w.label(1, w.filter)
	if next := w.plan(); len(w.begin()) != 0 || next != departurecap.Window || w.waits(1).Reason != v1alpha1.WarmUpReason {
		t.Errorf("it waits for %+v, the planner looks again in %s", w.waits(1), next)
	}
	w.after(departurecap.Window)
	if w.plan(); !slices.Equal(w.begin(), []int{1}) {
		t.Error("it does not leave after a window")
	}
}

// TestAnUrgentDepartureIsNotAdmitted expires the record of a kill switch that was turned off before its Machine could be
// deleted. Its ScheduledMachine removes the record.
func TestAnUrgentDepartureIsNotAdmitted(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.change(3, func(m *clusterv1.Machine) {
		children.Record(m, v1alpha1.NewDeparture(v1alpha1.KilledByPerson, w.clock.Now(), "a"))
	})
	if began := w.run(2 * time.Minute); len(began) > 0 {
		t.Errorf("%v leave", began)
	}
}

// TestALateCacheHoldsNoPlace has a cache that does not show a deletion for longer than the admission lasts.
func TestALateCacheHoldsNoPlace(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3, 4)
	late := *w.machine(3)
	w.stale = w.list()
	if w.plan(); w.deletions != 1 {
		t.Fatalf("%d leave at once, want one", w.deletions)
	}
	w.stale = w.list()
	w.stale[slices.IndexFunc(w.stale, func(m clusterv1.Machine) bool { return m.UID == late.UID })] = late
	w.after(departurecap.Window + time.Second)
	if w.plan(); !slices.Equal(w.begin(), []int{3, 4}) {
		t.Error("the second waits for the first, which has left")
	}
}

// TestAWithdrawnRequestOfAHeldMachineHasAnotherReason has another client delete a Machine with the expired record of an
// owner's request. With that reason, the schedule would be turned off for an owner that wants nothing.
func TestAWithdrawnRequestOfAHeldMachineHasAnotherReason(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.change(3, func(m *clusterv1.Machine) {
		children.Record(m, v1alpha1.NewDeparture(v1alpha1.ReclaimedByOwner, w.clock.Now(), "a"))
	})
	w.run(2 * time.Minute)
	w.must(w.Delete(w.Context(), w.machine(3)))
	w.run(time.Minute)
	if d, started := children.DepartureOf(w.machine(3), w.clock.Now()); !started || d.Reason != v1alpha1.DeletedByOthers {
		t.Errorf("the record is %+v", d)
	}
}
