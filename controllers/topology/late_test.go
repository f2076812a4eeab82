// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/topology"
)

// reading replaces reads of the cache.
func (w *world) reading(reads interceptor.Funcs) {
	w.r.Reader = interceptor.NewClient(w.Recorded(interceptor.Funcs{List: byIndex}).(client.WithWatch), reads)
}

// TestAStaleCacheTakesNothingOver covers a person's ScheduledMachine with the next name of the topology, and with the
// same content. The cache does not show it yet.
func TestAStaleCacheTakesNothingOver(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	theirs := w.machine("a")
	w.Must(w.Client.Delete(t.Context(), theirs))
	theirs.ObjectMeta = metav1.ObjectMeta{Namespace: theirs.Namespace, Name: theirs.Name}
	w.Create(theirs)
	w.reading(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, ok := obj.(*v1alpha1.ScheduledMachine); ok {
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("scheduledmachines").GroupResource(), key.Name)
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	if _, err := w.try(); err == nil {
		t.Error("it is not tried again")
	}
	w.want("a:9-17", taken, "ScheduledMachine lab-a exists but does not belong to this topology")
	if a := w.machine("a"); len(a.Labels)+len(a.OwnerReferences) > 0 {
		t.Errorf("it is taken over: %v, %v", a.Labels, a.OwnerReferences)
	}
}

// TestAReplacedMachineIsNotChanged covers a person who replaces a ScheduledMachine, while the cache shows the
// topology's one.
func TestAReplacedMachineIsNotChanged(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	old := w.machine("a")
	w.Must(w.Client.Delete(t.Context(), old.DeepCopy()))
	theirs := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name}, Spec: old.Spec}
	w.Create(theirs)
	w.reading(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
		if list, ok := into.(*v1alpha1.ScheduledMachineList); ok {
			list.Items = []v1alpha1.ScheduledMachine{*old.DeepCopy()}
			return nil
		}
		return c.List(ctx, into, opts...)
	}})
	w.setItems(item("a", "10"))
	if res, err := w.try(); err == nil && res.RequeueAfter == 0 {
		t.Error("it is not tried again")
	}
	if got := w.machines(); got != "a:9-17" {
		t.Errorf("there are %q: a person's is taken over", got)
	}
	w.setItems()
	if res, err := w.try(); err == nil && res.RequeueAfter == 0 {
		t.Error("it is not tried again")
	}
	if got := w.machines(); got != "a:9-17" {
		t.Errorf("there are %q: a person's is deleted", got)
	}
}

// TestAReplacedClusterDeletesNothing covers a cache that shows a deleted Cluster of the same name and generation, with
// an empty list.
func TestAReplacedClusterDeletesNothing(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	old := w.cluster.DeepCopy()
	old.UID, old.Spec.Topology.Variables = "gone", variables("[]")
	w.wantNothingOf(old)
}

// wantNothingOf makes the cache show an old Cluster, and checks that no write follows.
func (w *world) wantNothingOf(old *clusterv1.Cluster) {
	w.Helper()
	w.Writes = nil
	w.reading(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if cluster, ok := obj.(*clusterv1.Cluster); ok {
			old.DeepCopyInto(cluster)
			return nil
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	res, err := w.try()
	if err != nil || res.RequeueAfter == 0 || len(w.Writes) > 0 {
		w.Errorf("got %+v, %v, writes %v", res, err, w.Writes)
	}
	w.want("a:9-17", applied, "")
}

// TestOwnedMachinesEnqueueTheirCluster covers creations and changes of ScheduledMachines.
func TestOwnedMachinesEnqueueTheirCluster(t *testing.T) {
	ours, theirs := &v1alpha1.ScheduledMachine{}, &v1alpha1.ScheduledMachine{}
	ours.Labels = map[string]string{v1alpha1.TopologyOwnedLabel: ""}
	for name, tc := range map[string]struct {
		reason     string
		old, after client.Object
		want       bool
	}{
		"Ours":      {"What was edited is mended.", ours, ours, true},
		"TakenOver": {"A person took it over: the topology asks for another of that name.", ours, theirs, true},
		"GivenBack": {"It is the topology's again.", theirs, ours, true},
		"Theirs":    {"It concerns no topology.", theirs, theirs, false},
	} {
		if got := topology.Owned.Update(event.UpdateEvent{ObjectOld: tc.old, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: %v: %s", name, got, tc.reason)
		}
	}
	if !topology.Owned.Delete(event.DeleteEvent{Object: ours}) || topology.Owned.Delete(event.DeleteEvent{Object: theirs}) {
		t.Error("one of the topology that goes is made again, and no other")
	}
}
