// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// infraLate returns a controller whose cache lacks the infrastructure while late is set. Each kind has its own
// informer, which may lag.
func (w *world) infraLate(late *bool) *scheduledmachine.Reconciler {
	live := w.Recorded(interceptor.Funcs{})
	cached := w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if u, ok := obj.(*unstructured.Unstructured); *late && ok && u.GetKind() == builder.GenericInfrastructureMachineKind {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "generic"}, key.Name)
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	r := w.reconciler(live)
	r.Children = children.Reader{Cached: cached, Live: live}
	return r
}

// TestAStaleCacheReplacesNoMachine uses a cache without the infrastructure, from the creation of the Machine until the
// status shows it.
func TestAStaleCacheReplacesNoMachine(t *testing.T) {
	w := newWorld(t, nil)
	late := false
	w.r = w.infraLate(&late)
	w.clock.SetTime(monday.Add(time.Hour))
	w.Writes = nil
	for range 8 {
		m, ok := w.machine()
		late = ok && m.DeletionTimestamp.IsZero() && w.sm.Status.MachineRef == nil
		if ok && len(m.Finalizers) == 0 {
			w.hold(m)
		}
		w.reconcile()
		w.clock.SetTime(w.clock.Now().Add(100 * time.Millisecond))
	}
	if m, ok := w.machine(); !ok || !m.DeletionTimestamp.IsZero() {
		t.Fatalf("one late look, and the Machine that was just made is taken away: %v", w.Writes)
	}
}

// TestTheBootstrapConfigOutlivesInfrastructureThatTheCacheLacks rejects the Machine after its infrastructure was
// created, and closes the window.
func TestTheBootstrapConfigOutlivesInfrastructureThatTheCacheLacks(t *testing.T) {
	w := newWorld(t, nil)
	late := false
	w.r = w.infraLate(&late)
	w.clock.SetTime(monday.Add(time.Hour))
	w.Writes = nil
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "apply Machine" {
			before = apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("no machines today"))
		}
		return before, nil
	}
	for range 12 {
		w.reconcile()
		w.clock.SetTime(w.clock.Now().Add(100 * time.Millisecond))
		if _, ok := w.infra(); ok {
			break
		}
	}
	i, ok := w.infra()
	if !ok {
		t.Fatal("no infrastructure")
	}
	w.hold(i)
	if b, ok := w.bootstrap(); ok {
		w.hold(b)
	}
	late = true
	w.clock.SetTime(monday.Add(10 * time.Hour))
	for range 3 {
		w.reconcile()
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	}
	b, ok := w.bootstrap()
	i, _ = w.infra()
	if (!ok || !b.GetDeletionTimestamp().IsZero()) && i.GetDeletionTimestamp().IsZero() {
		t.Fatalf("the bootstrap config is deleted, the infrastructure is not: %v", w.Writes)
	}
}

// TestAWithdrawnRemovalLeavesNoAnnotations turns the kill switch on while deletions of Machines are
// rejected, and off afterwards.
func TestAWithdrawnRemovalLeavesNoAnnotations(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
	w.Writes = nil
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "delete Machine" {
			before = apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "box-machine", errors.New("deletions are forbidden"))
		}
		return before, nil
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	w.reconcile()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = false })
	w.Fail = nil
	for range 6 {
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
		w.reconcile()
	}
	m, ok := w.machine()
	if !ok || !m.DeletionTimestamp.IsZero() {
		t.Fatal("machine gone")
	}
	for _, k := range []string{clusterv1.ExcludeNodeDrainingAnnotation, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, on := m.Annotations[k]; on {
			t.Errorf("%s stays on a machine that runs", k)
		}
	}
	w.clock.SetTime(monday.Add(10 * time.Hour))
	w.settle()
	m, _ = w.machine()
	if _, on := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; on {
		t.Errorf("the window ends (%s) and nothing is drained: grace %s, record %s", w.sm.Status.Phase, w.sm.Spec.GracefulShutdownTimeout, m.Annotations[v1alpha1.DepartureAnnotation])
	}
}
