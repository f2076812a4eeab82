// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// frozen has the reconciler see the ScheduledMachine as it is now, until thaw is called.
func (w *world) frozen() (thaw func()) {
	w.Read(w.sm)
	stale := w.sm.DeepCopy()
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if sm, ok := obj.(*v1alpha1.ScheduledMachine); ok && stale != nil {
				stale.DeepCopyInto(sm)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	return func() { stale = nil }
}

// TestACacheThatIsLateIsNotWrittenFrom meets what somebody else wrote, and what it
// wrote itself: one write is refused at most.
func TestACacheThatIsLateIsNotWrittenFrom(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	for name, write := range map[string]func(){
		"by somebody else": func() {
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Annotations = map[string]string{"touched": "true"} })
		},
		"by itself": func() {},
	} {
		t.Run(name, func(t *testing.T) {
			thaw := w.frozen()
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

// TestFirstWritesAreNotRefused takes each next step from what the last one wrote:
// Cluster API's helper asks five times when a cache is late.
func TestFirstWritesAreNotRefused(t *testing.T) {
	w := newWorld(t, nil)
	thaw := w.frozen()
	w.reconcile()
	if len(w.Writes) != 1 {
		t.Fatalf("%v from one look at a new object; want one write", w.Writes)
	}
	thaw()
	thaw = w.frozen()
	w.Writes = nil
	w.reconcile()
	w.reconcile()
	if len(w.Writes) != 1 {
		t.Fatalf("%v from the next look; want one write", w.Writes)
	}
	thaw()
}

// TestAMachineThatIsNotReadyIsCoreOnly leaves its status to Cluster API, which writes
// it most of all then.
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

// TestWhatTheMachineShowsHoldsNothingUp, because the newer Machine wakes us: here,
// Cluster API writes it in between.
func TestWhatTheMachineShowsHoldsNothingUp(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	stale, _ := w.machine()
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if m, ok := obj.(*clusterv1.Machine); ok {
				stale.DeepCopyInto(m)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}))
	m, _ := w.machine()
	w.Edit(m, func() { metav1.SetMetaDataAnnotation(&m.ObjectMeta, "touched", "true") })
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) })
	w.Writes = nil
	if next := w.reconcile().RequeueAfter; next == wake.QuietRetry {
		t.Errorf("tries again in %v, before the cache can show anything new", next)
	}
	if !slices.Contains(w.Writes, "patch Machine status") {
		t.Fatalf("%v: the test shows nothing", w.Writes)
	}
	if w.sm.Status.Phase != v1alpha1.PhaseDisabled {
		t.Errorf("phase %s, want %s", w.sm.Status.Phase, v1alpha1.PhaseDisabled)
	}
}
