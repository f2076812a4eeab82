// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// TestAStaleCacheCausesNoWrite uses a cache that lags behind writes of others and of the controller. At most
// one write fails with a conflict.
func TestAStaleCacheCausesNoWrite(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	for name, write := range map[string]func(){
		"by another client": func() {
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Annotations = map[string]string{"touched": "true"} })
		},
		"by itself": func() {},
	} {
		t.Run(name, func(t *testing.T) {
			reads, thaw := w.Late(w.sm)
			w.r = w.reconciler(w.Recorded(reads))
			write()
			w.clock.SetTime(w.clock.Now().Add(24 * time.Hour)) // There is something to report.
			w.Writes = nil
			w.reconcile()
			if len(w.Writes) == 0 {
				t.Fatal("nothing was to be written: the test shows nothing")
			}
			w.Writes = nil
			for range 3 {
				if next := w.reconcile().RequeueAfter; next < wake.QuietRetry || len(w.Writes) != 0 {
					t.Fatalf("from a late cache: writes %v, next look in %v", w.Writes, next)
				}
			}
			thaw()
			w.settle()
			w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
		})
	}
}

// TestFirstWritesCauseNoConflict shows each write to the next reconcile. Cluster API's patch helper retries five times
// with a stale cache.
func TestFirstWritesCauseNoConflict(t *testing.T) {
	w := newWorld(t, nil)
	for look := range 2 {
		reads, _ := w.Late(w.sm)
		w.r = w.reconciler(w.Recorded(reads))
		w.Writes = nil
		w.reconcile()
		w.reconcile()
		if len(w.Writes) != 1 {
			t.Fatalf("%v from look %d at a new object; want one write", w.Writes, look)
		}
	}
}

// TestAMachineThatIsNotReadyIsCoreOnly checks that the controller does not write the status of a Machine that is not
// ready. Cluster API writes it most often then.
func TestAMachineThatIsNotReadyIsCoreOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	m, ok := w.machine()
	if !ok {
		t.Fatal("no Machine")
	}
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionFalse, "NotReady", "")
	w.settle()
	if m, _ = w.machine(); conditions.Get(m, v1alpha1.MachineScheduledCondition) != nil {
		t.Error("the Machine shows the schedule before it is ready")
	}
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
	w.settle()
	if m, _ = w.machine(); conditions.Get(m, v1alpha1.MachineScheduledCondition) == nil {
		t.Error("the Machine does not show the schedule")
	}
}

// TestALastingConflictCostsOneTryPerBackOff answers writes with 409 for an hour, and enqueues the object every second.
func TestALastingConflictCostsOneTryPerBackOff(t *testing.T) {
	for _, refused := range []string{"patch ScheduledMachine status"} {
		t.Run(refused, func(t *testing.T) {
			w := newWorld(t, nil)
			w.running()
			w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
			w.Writes = nil
			w.Fail = func(n int) (before, after error) {
				if w.Writes[n] == refused {
					before = apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "box", errors.New("try again"))
				}
				return before, nil
			}
			w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
			for range 360 {
				w.reconcile()
				w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
			}
			tries := 0
			for _, write := range w.Writes {
				if write == refused {
					tries++
				}
			}
			// The back-off doubles from 50 ms to five minutes, which takes a quarter of an hour.
			if tries < 10 || tries > 30 {
				t.Errorf("%d tries in an hour", tries)
			}
			tried := len(w.Writes)
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
			w.reconcile()
			if len(w.Writes) == tried {
				t.Error("an edit waits for the end of the back-off")
			}
		})
	}
}

// TestTheConditionOnTheMachineCausesNoConflict covers Cluster API as the other writer of the Machine's status: it
// writes before the cache shows it.
func TestTheConditionOnTheMachineCausesNoConflict(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	m, _ := w.machine()
	reads, _ := w.Late(m)
	w.r = w.reconciler(w.Recorded(reads))
	w.report(m, clusterv1.MachineAvailableCondition, metav1.ConditionTrue, "Available", "")
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) })
	w.Writes = nil
	w.reconcile()
	if want := []string{"patch ScheduledMachine status", "apply Machine status"}; !slices.Equal(w.Writes, want) {
		t.Errorf("%v, want %v", w.Writes, want)
	}
	w.Read(m)
	if c := conditions.Get(m, v1alpha1.MachineScheduledCondition); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ScheduleDisabledReason {
		t.Errorf("the Machine shows %+v", c)
	}
	if !conditions.IsTrue(m, clusterv1.MachineAvailableCondition) || !conditions.IsTrue(m, clusterv1.ReadyCondition) {
		t.Errorf("what Cluster API wrote is lost: %+v", m.Status.Conditions)
	}
}

// TestAConflictAboutALabelHoldsNoWindowOpen answers 409 to the writes that restore labels.
func TestAConflictAboutALabelHoldsNoWindowOpen(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	i, _ := w.infra()
	w.Edit(i, func() { i.SetLabels(nil) })
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch GenericInfrastructureMachine" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "infras"}, "x", errors.New("not now")), nil
		}
		return nil, nil
	}
	end := time.Date(2025, time.January, 20, 18, 0, 0, 0, time.UTC)
	w.clock.SetTime(end.Add(-25 * time.Minute))
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}
	for range 400 {
		res, err := w.r.Reconcile(w.Context(), req)
		w.Must(err)
		if w.admit() {
			continue
		}
		m, ok := w.machine()
		if now := w.clock.Now(); !ok || !m.DeletionTimestamp.IsZero() {
			if late := now.Sub(end); late > 2*time.Second {
				t.Errorf("the Machine leaves %v late", late)
			}
			return
		}
		if res.RequeueAfter <= 0 {
			t.Fatal("never")
		}
		w.clock.SetTime(w.clock.Now().Add(res.RequeueAfter))
	}
	t.Fatal("does not leave", w.clock.Now(), w.Writes[len(w.Writes)-5:])
}
