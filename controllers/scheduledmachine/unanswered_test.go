// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// closed is when the window of a world ends.
var closed = monday.Add(9*time.Hour + time.Second)

// TestAnUnansweredRequestIsReported covers a request that the planner does not answer, for example because the Machine
// is paused. For one Window there is nothing to report. After it, the status follows the clock.
func TestAnUnansweredRequestIsReported(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.planned = true // No planner runs.
	w.clock.SetTime(closed)
	w.Writes = nil
	if next := w.reconcile().RequeueAfter; next != departurecap.Window || !w.sm.Status.InSchedule || len(w.Writes) != 1 {
		t.Fatalf("the next reconcile is in %v, inSchedule=%t, writes %v; want %v and only the request", next, w.sm.Status.InSchedule, w.Writes, departurecap.Window)
	}
	w.clock.SetTime(w.clock.Now().Add(departurecap.Window / 2))
	if next := w.reconcile().RequeueAfter; next != departurecap.Window/2 || len(w.Writes) != 1 {
		t.Fatalf("an event in between: the next reconcile is in %v, writes %v", next, w.Writes)
	}
	w.clock.SetTime(closed.Add(departurecap.Window))
	w.reconcile()
	w.want(v1alpha1.PhaseActive, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.ScheduleInactiveReason)
	st := w.sm.Status
	if st.InSchedule || st.NextActivation == nil || !st.NextCleanup.Time.Equal(closed) {
		t.Errorf("inSchedule=%t, nextActivation=%v, nextCleanup=%v", st.InSchedule, st.NextActivation, st.NextCleanup)
	}
	if d := st.Departure; d == nil || d.Reason != v1alpha1.WindowClosed || d.Lane != v1alpha1.ScheduledLane || !d.RequestedTime.Time.Equal(closed) || d.AdmittedTime != nil {
		t.Errorf("departure %+v", d)
	}
	w.Writes = nil
	for range 6 {
		w.clock.SetTime(w.clock.Now().Add(departurecap.Window))
		w.reconcile()
	}
	if len(w.Writes) != 0 {
		t.Errorf("a settled object is written: %v", w.Writes)
	}
	if w.admitted(); w.sm.Status.Phase != v1alpha1.PhaseShuttingDown {
		t.Errorf("phase %s after the answer", w.sm.Status.Phase)
	}
}

// admitted lets the planner answer, and reconciles.
func (w *world) admitted() {
	w.Helper()
	w.planned = false
	w.admit()
	w.settle()
}
