// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

func TestRequestIsWithdrawn(t *testing.T) {
	testenv.CrashPoints(t, 6, func(t *testing.T, fail testenv.Fail) ([]string, int) {
		t.Helper()
		w, p := newDrain(t, nil)
		w.Fail = fail
		for range 2 {
			_, _ = w.try(p.Name)
		}
		w.drain(0, false)
		for range 6 {
			for _, r := range w.requests() {
				_, _ = w.reconciler.ReconcileRequest(t.Context(), client.ObjectKeyFromObject(&r))
			}
			w.pass(verdict.MarkRemovalDelay)
		}
		w.Read(p)
		return []string{w.left(), fmt.Sprint(p.Annotations)}, len(w.Writes)
	})
}

// TestARequestShowsThatItsPodIsGone, once, until it is deleted.
func TestARequestShowsThatItsPodIsGone(t *testing.T) {
	w, p := newRequest(t, nil)
	w.tend()
	if r := w.requests(); len(r) != 1 || !r[0].Spec.PodTerminatedTime.IsZero() {
		t.Fatalf("its pod is there: %+v", r)
	}
	w.leave(p)
	gone := w.clock.Now()
	for range 2 {
		w.tend()
		if r := w.requests(); len(r) != 1 || !r[0].Spec.PodTerminatedTime.Time.Equal(gone) {
			t.Errorf("got %+v, want %s", r, gone)
		}
		w.pass(time.Minute)
	}
	w.restart(interceptor.Funcs{}) // Another leader continues.
	w.pass(eviction.DefaultNameProtection - 2*time.Minute)
	if w.tend(); len(w.requests()) > 0 {
		t.Errorf("left %s", w.left())
	}
}

// TestAPodTerminatedTimeInTheFuture comes from a clock that was ahead, and is corrected.
func TestAPodTerminatedTimeInTheFuture(t *testing.T) {
	w, p := newRequest(t, nil)
	w.leave(p)
	w.pass(24 * time.Hour)
	w.tend()
	w.pass(-24 * time.Hour)
	w.tend()
	w.pass(eviction.DefaultNameProtection)
	if w.tend(); len(w.requests()) > 0 {
		t.Errorf("left %s", w.left())
	}
}

// TestMarkOfOtherClientStays has a mark that a person wrote.
func TestMarkOfOtherClientStays(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.Edit(p, func() { p.Annotations = map[string]string{moveKey: "please"} })
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.wantWrites("create RescheduleRequest")
	w.drain(0, false)
	w.settle()
	if !w.isMarked(p) || w.left() != "" {
		t.Errorf("annotations %v, left %s", p.Annotations, w.left())
	}
}

// TestTrackingMarkThatCannotBeRemoved blocks neither the request nor the next drain.
func TestTrackingMarkThatCannotBeRemoved(t *testing.T) {
	for name, refused := range map[string]error{
		"Forbidden": apierrors.NewForbidden(corev1.Resource("namespaces"), "db", errors.New("the role is gone")),
		"NoKind":    &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "couchbase.com", Kind: "CouchbaseCluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newRequest(t, func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
			w.restart(interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				if key.Name == w.ns {
					return refused
				}
				return nil
			}})
			w.drain(0, false)
			for range 3 {
				for _, r := range w.requests() {
					_, _ = w.reconciler.ReconcileRequest(t.Context(), client.ObjectKeyFromObject(&r))
				}
				w.pass(verdict.MarkRemovalDelay + time.Second)
			}
			if left := w.requests(); len(left) > 0 {
				t.Errorf("left %+v", left)
			}
			w.drain(0, true)
			w.evict("db-0", verdict.Wait, verdict.Requested)
		})
	}
}

// TestALeaderWhoseClockWasAhead has a leader that withdrew a request with a clock ahead by a day.
func TestALeaderWhoseClockWasAhead(t *testing.T) {
	w, p := newRequest(t, nil)
	w.drain(0, false)
	w.pass(24 * time.Hour)
	w.tend()
	w.pass(-24 * time.Hour)
	w.wantTakenBack(p)
}

// TestAPodThatMayNotBeChanged keeps its mark, and can be drained again.
func TestAPodThatMayNotBeChanged(t *testing.T) {
	w, p := newRequest(t, nil)
	w.drain(0, false)
	w.tend()
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "db-0", errors.New("an admission policy"))
	w.Fail = func(int) (before, after error) {
		if strings.HasSuffix(strings.Join(w.Writes, " "), "patch Pod") {
			return refused, nil
		}
		return nil, nil
	}
	key := client.ObjectKey{Namespace: w.ns, Name: string(p.UID)}
	w.pass(verdict.MarkRemovalDelay)
	if _, err := w.reconciler.ReconcileRequest(t.Context(), key); !errors.Is(err, refused) {
		t.Fatalf("its pod may be changed again soon: %v", err)
	}
	w.pass(eviction.DefaultNameProtection)
	if _, err := w.reconciler.ReconcileRequest(t.Context(), key); err != nil || len(w.requests()) > 0 {
		t.Fatalf("left %v: %v", w.requests(), err)
	}
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Waiting)
}

// TestADrainThatBeginsAnew while the request of the last drain is being withdrawn.
func TestADrainThatBeginsAnew(t *testing.T) {
	w, p := newRequest(t, nil)
	w.drain(0, false)
	w.tend()
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Withdrawing)
	w.pass(verdict.MarkRemovalDelay)
	w.tend()
	if w.isMarked(p) {
		t.Error("not taken back")
	}
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if !w.isMarked(p) {
		t.Error("nobody asked")
	}
}

// TestAPolicyThatTheLeaderHasNotSeenYet has a policy that is missing in the leader's cache. Another guard, or a
// manager, has read it.
func TestAPolicyThatTheLeaderHasNotSeenYet(t *testing.T) {
	w, _ := newRequest(t, nil)
	evictor := *w.evictor
	evictor.Policies = interceptor.NewClient(w.Client, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return nil // The cache does not have new objects yet.
		},
	})
	w.reconciler = &evictor
	if fates := w.tend(); len(fates) != 1 || fates[0] != verdict.NoChange {
		t.Errorf("got %v: it is withdrawn, and nobody drains it the less", fates)
	}
}

// TestAnOperatorThatKeepsItsOwnAnnotationOnly removes all other annotations. The guard still withdraws the request.
func TestAnOperatorThatKeepsItsOwnAnnotationOnly(t *testing.T) {
	w, p := newRequest(t, nil)
	w.Edit(p, func() { delete(p.Annotations, evictionv1.RequestedAnnotation) })
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.drain(0, false)
	w.wantTakenBack(p)
}

// TestRelocateIsTurnedOff while an operator moves a pod without need: the guard withdraws the request.
func TestRelocateIsTurnedOff(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.HealthyNode = evictionv1.HealthyNodeRelocate })
	p := w.pod("db-0", 0)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	w.Edit(w.policy, func() { w.policy.Spec.HealthyNode = evictionv1.HealthyNodeAllow })
	w.evict("db-0", verdict.Allow, verdict.HealthyNode)
	w.wantTakenBack(p)
}

// TestAMarkGoesWithItsPod, although no eviction finds the pod that takes its name: kubectl's last attempt came between
// the two.
func TestAMarkGoesWithItsPod(t *testing.T) {
	w, p := newRequest(t, func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	marked := func() bool {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
		w.Read(ns)
		return ns.Annotations[evictionv1.TrackingPrefix+w.ns+".db-0"] != ""
	}
	if !marked() {
		t.Fatal("there is no mark")
	}
	w.leave(p)
	w.evict("db-0", verdict.Gone, verdict.NoPod)
	w.pod("db-0", 0)
	w.tend()
	if marked() {
		t.Error("the mark says that a pod is waited for which is gone")
	}
	w.Writes = nil
	w.tend()
	w.wantWrites()
}
