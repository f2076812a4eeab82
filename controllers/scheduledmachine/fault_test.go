// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// TestAFaultOverAWindowEndDelaysNoDeparture covers a webhook that rejects all patches of Machines over the end of a
// window, and an API server that rejects the reads. The departure is requested within 30 s of the end of the fault.
func TestAFaultOverAWindowEndDelaysNoDeparture(t *testing.T) {
	for name, refusal := range map[string]struct{ write, read error }{
		"Error":    {write: apierrors.NewInternalError(errors.New("failed calling webhook"))},
		"Conflict": {write: apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "box", errors.New("not now"))},
		"Reads":    {read: apierrors.NewInternalError(errors.New("etcdserver: no leader"))},
	} {
		for _, fault := range []time.Duration{9 * time.Minute, 19 * time.Minute} {
			t.Run(fmt.Sprint(name, "/", fault), func(t *testing.T) {
				w := newWorld(t, nil)
				w.running()
				w.planned = true // No planner runs.
				lasts := func() bool { return w.clock.Now().Before(closed.Add(fault)) }
				w.Fail = func(n int) (before, after error) {
					if w.Writes[n] == "patch Machine" && lasts() {
						return refusal.write, nil
					}
					return nil, nil
				}
				w.r = w.reconciler(w.Recorded(interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						if _, ok := obj.(*clusterv1.Machine); ok && refusal.read != nil && lasts() {
							return refusal.read
						}
						return c.Get(ctx, key, obj, opts...)
					},
				}))
				w.clock.SetTime(closed)
				for requested := false; !requested; {
					res := w.reconcile()
					m, _ := w.machine()
					state, _ := children.StateOf(m, w.clock.Now())
					if requested = state == children.Requested; !requested {
						w.clock.SetTime(w.clock.Now().Add(res.RequeueAfter))
					}
					if res.RequeueAfter <= 0 || w.clock.Now().After(closed.Add(fault+31*time.Second)) {
						t.Fatalf("%v after the end of the fault: requested=%t, the next reconcile is in %v", w.clock.Now().Sub(closed.Add(fault)), requested, res.RequeueAfter)
					}
				}
			})
		}
	}
}

// TestFailedDeparturesAreRetriedAtDifferentTimes covers machines whose departures fail in the same second.
func TestFailedDeparturesAreRetriedAtDifferentTimes(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch Machine" {
			return apierrors.NewInternalError(errors.New("failed calling webhook")), nil
		}
		return nil, nil
	}
	w.clock.SetTime(closed)
	waits := map[time.Duration]bool{}
	for i := range 15 {
		wait := w.reconcile().RequeueAfter
		if i < 5 {
			continue // The back-off is 1 s to 16 s.
		}
		if wait < 15*time.Second || wait > 30*time.Second {
			t.Fatalf("try %d: the next one is in %v, want 15s to 30s", i, wait)
		}
		waits[wait] = true
	}
	if len(waits) < 5 {
		t.Errorf("the waits are %v: a thousand machines would be retried at once", waits)
	}
}

// TestTheBackOffAfterConflictsDelaysNoEdge covers a webhook that answers each status write with a conflict, and a
// status that changed 25 minutes before the end of a window.
func TestTheBackOffAfterConflictsDelaysNoEdge(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.planned = true // No planner runs.
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch ScheduledMachine status" {
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("scheduledmachines").GroupResource(), "box", errors.New("not now")), nil
		}
		return nil, nil
	}
	w.clock.SetTime(closed.Add(-25 * time.Minute))
	m, _ := w.machine()
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionFalse, "NotReady", "")
	for w.clock.Now().Before(closed) {
		res := w.reconcile()
		if res.RequeueAfter <= 0 || w.clock.Now().Add(res.RequeueAfter).After(closed) {
			t.Fatalf("at %s the next reconcile is in %v: the window ends at %s", w.clock.Now(), res.RequeueAfter, closed)
		}
		w.clock.SetTime(w.clock.Now().Add(res.RequeueAfter))
	}
	w.reconcile()
	m, _ = w.machine()
	if state, _ := children.StateOf(m, w.clock.Now()); state != children.Requested || !w.clock.Now().Equal(closed) {
		t.Errorf("at %s the departure is in state %q", w.clock.Now(), state)
	}
}
