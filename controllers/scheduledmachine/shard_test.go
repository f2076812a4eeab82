// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// newShard returns a running machine with the watch label, in a manager with the watch filter mine.
func newShard(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })
	w.r.WithWatchFilter("mine")
	w.running()
	return w
}

func (w *world) label(filter string) {
	w.Helper()
	w.Edit(w.cluster, func() { w.cluster.Labels = map[string]string{clusterv1.WatchLabel: filter} })
}

// TestAClusterOfAnotherShardIsNotReachable changes the label of the Cluster. The connection opens and closes with it,
// as in the cluster cache.
func TestAClusterOfAnotherShardIsNotReachable(t *testing.T) {
	w := newShard(t)
	connected := w.r.ClusterCache
	untried := clustercache.NewFakeClusterCache(w.Client, client.ObjectKey{Name: "other"})
	want := func(reason string, cache clustercache.ClusterCache) {
		t.Helper()
		w.r.ClusterCache = cache
		w.settle()
		status := metav1.ConditionFalse
		if reason == v1alpha1.ConnectedReason {
			status = metav1.ConditionTrue
		}
		w.want(v1alpha1.PhaseActive, v1alpha1.WorkloadClusterReachableCondition, status, reason)
	}
	want(v1alpha1.WatchFilterMismatchReason, connected) // The connection will close.
	c := conditions.Get(w.sm, v1alpha1.WorkloadClusterReachableCondition)
	for _, part := range []string{"Cluster " + w.cluster.Name + " lacks", clusterv1.WatchLabel + "=mine", "owners' requests are not seen", "label the Cluster"} {
		if !strings.Contains(c.Message, part) {
			t.Errorf("message must have %q, the way out: %s", part, c.Message)
		}
	}
	want(v1alpha1.WatchFilterMismatchReason, untried)
	w.label("mine")
	want(v1alpha1.NotConnectedReason, untried)
	want(v1alpha1.ConnectedReason, connected)
	want(v1alpha1.ConnectedReason, untried) // A starting manager does not change the condition.
	w.label("yours")
	want(v1alpha1.WatchFilterMismatchReason, untried)
	w.Writes = nil
	want(v1alpha1.WatchFilterMismatchReason, untried)
	if len(w.Writes) != 0 {
		t.Errorf("what is settled writes nothing: %v", w.Writes)
	}
}

// TestAnUpdateNeedsItsMachine uses a cache that still shows a deleted Machine.
func TestAnUpdateNeedsItsMachine(t *testing.T) {
	w := newShard(t)
	before, _ := w.machine()
	c := w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if m, ok := obj.(*clusterv1.Machine); ok {
			before.DeepCopyInto(m)
			return nil
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	w.letGo(before.DeepCopy())
	w.Must(w.Client.Delete(t.Context(), before.DeepCopy()))
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Labels[clusterv1.WatchLabel] = "yours" })
	w.r.WithWatchFilter("yours")
	w.r.Children.Cached = c
	w.Writes = nil
	w.reconcile()
	if m, exists := w.machine(); exists || !slices.Contains(w.Writes, "apply Machine") {
		t.Errorf("an update of the Machine that was read created another: %s, %v", m.UID, w.Writes)
	}
}

// TestChildrenHaveTheWatchLabel covers a Cluster API with the same watch filter.
func TestChildrenHaveTheWatchLabel(t *testing.T) {
	w := newShard(t)
	labels := func() map[string]string {
		machine, _ := w.machine()
		bootstrap, _ := w.bootstrap()
		infra, _ := w.infra()
		got := map[string]string{}
		for what, obj := range map[string]client.Object{"Machine": machine, "bootstrap": bootstrap, "infrastructure": infra} {
			got[what] = obj.GetLabels()[clusterv1.WatchLabel]
		}
		return got
	}
	for what, got := range labels() {
		if got != "mine" {
			t.Errorf("%s has the watch label %q: a provider with the filter mine would ignore it", what, got)
		}
	}
	before, _ := w.machine()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Labels[clusterv1.WatchLabel] = "yours" })
	w.r.WithWatchFilter("yours")
	w.settle()
	machine, _ := w.machine()
	if got := machine.Labels[clusterv1.WatchLabel]; got != "yours" || machine.UID != before.UID || !machine.DeletionTimestamp.IsZero() {
		t.Errorf("a Machine that runs moves to the other shard as it is: label %q, %s was %s", got, machine.UID, before.UID)
	}
}
