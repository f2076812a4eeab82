// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// TestALockedMachineDelaysNoOthers refuses every change of a Machine after its admission: the admission cannot be ended.
func TestALockedMachineDelaysNoOthers(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.undeletable = errLocked
	w.leaves(v1alpha1.UnscheduledLane, 3)
	w.plan()
	w.undeletable, w.locked = nil, map[string]bool{machineOf(3): true}
	w.leaves(v1alpha1.UnscheduledLane, 5)
	w.after(departurecap.Window)
	if w.plan(); len(w.begin()) != 0 {
		t.Error("a delete call that was sent before may still arrive")
	}
	w.after(departurecap.Window)
	if w.plan(); !slices.Equal(w.begin(), []int{5}) {
		t.Error("an admission that cannot be ended takes every start of its Cluster")
	}
}

// TestAnExpiryInTheFutureDelaysNoOthers writes expiredAt by hand.
func TestAnExpiryInTheFutureDelaysNoOthers(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3, 5)
	w.change(3, func(m *clusterv1.Machine) {
		d, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
		d.ExpiredAt = metav1.NewTime(w.clock.Now().Add(time.Hour))
		children.SetDeparture(m, d)
	})
	began := w.run(24 * time.Second)
	if len(began) == 0 {
		t.Error("no machine leaves for an hour")
	}
}

// TestAnExemptRecordByHandExpires writes an admission in the exempt lane by hand to a machine that has to leave.
func TestAnExemptRecordByHandExpires(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.change(3, func(m *clusterv1.Machine) {
		d := v1alpha1.NewDeparture(v1alpha1.WindowClosed, w.clock.Now(), "forged")
		d.Lane = v1alpha1.ExemptLane
		children.SetDeparture(m, d)
	})
	var began []int
	for range 30 {
		w.plan()
		w.leaves(v1alpha1.UnscheduledLane, 3)
		began = append(began, w.begin()...)
		w.after(2 * time.Second)
		if len(began) > 0 {
			break
		}
	}
	if !slices.Equal(began, []int{3}) {
		t.Error("it never leaves")
	}
}

// TestARequestThatIsNotDueDelaysNoOthers has a schedule that wants the machine again, and a request that its
// ScheduledMachine cannot remove.
func TestARequestThatIsNotDueDelaysNoOthers(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.ScheduledLane, 3)
	w.leaves(v1alpha1.UnscheduledLane, 5)
	sm := &v1alpha1.ScheduledMachine{}
	w.must(w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: box(3)}, sm))
	sm.Spec.Schedule = v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-12"}}
	w.must(w.Update(w.Context(), sm))
	began := w.run(24 * time.Second)
	if !slices.Equal(began, []int{5}) {
		t.Errorf("%v leave", began)
	}
	if next := w.plan(); next == 0 || next > time.Hour {
		t.Errorf("the planner does not look again when the window ends, but in %s", next)
	}
}

// TestSlowAnswersDelayNoAdmission has a slow API server, and many machines that wait.
func TestSlowAnswersDelayNoAdmission(t *testing.T) {
	w := newWorld(t, 40)
	w.warm()
	for i := range 40 {
		w.leaves(v1alpha1.ScheduledLane, i)
	}
	w.slow = departurecap.Window
	before := w.clock.Now()
	next := w.plan()
	if took := w.clock.Now().Sub(before); took > 3*departurecap.Window || next == 0 {
		t.Errorf("a run takes %s, and the next one starts %s later", took, next)
	}
}

// TestMachinesThatNeverRanLeaveAtThePaceOfTheCap has a Cluster in which no machine ran, and deletions take no time.
func TestMachinesThatNeverRanLeaveAtThePaceOfTheCap(t *testing.T) {
	w := newWorld(t, 0)
	for range 10 {
		w.join(false)
	}
	w.warm()
	for i := range 10 {
		w.leaves(v1alpha1.UnscheduledLane, i)
	}
	for range 5 {
		w.plan()
		for _, m := range w.list() {
			if !m.DeletionTimestamp.IsZero() {
				m.Finalizers = nil
				w.must(w.Update(w.Context(), &m))
			}
		}
		w.after(time.Second)
	}
	if left := 10 - len(w.list()); left != 1 {
		t.Errorf("%d leave in 5 s", left)
	}
}

// TestRefusedAnswersAreNotTriedEachSecond has a webhook refuse all changes of Machines while the cap defers nine of them.
func TestRefusedAnswersAreNotTriedEachSecond(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.annotate(map[string]string{v1alpha1.HoldDeparturesAnnotation: "a bad template"})
	w.leaves(v1alpha1.UnscheduledLane, 0, 1, 2)
	w.refused = errLocked
	patches := w.patches
	for end := w.clock.Now().Add(time.Minute); w.clock.Now().Before(end); {
		next := w.plan()
		if next == 0 {
			t.Fatal("the planner forgets the machines that have no answer")
		}
		w.after(next)
	}
	if n := w.patches - patches; n > 3*7 {
		t.Errorf("%d patches of three Machines in a minute", n)
	}
	w.refused = nil
	w.plan()
	if w.waits(1).Reason != string(v1alpha1.DeparturesHeldReason) {
		t.Error("it has no answer after the fault")
	}
}
