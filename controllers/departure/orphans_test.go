// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
)

const farmLab = "farm/lab"

// machine returns the Machine of the ScheduledMachine a with UID 1, changed by change.
func orphaned(change func(*clusterv1.Machine)) *clusterv1.Machine {
	const of, uid = "a", "1"
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "farm", Name: of + "-machine", Labels: map[string]string{v1alpha1.ScheduledMachineLabel: of},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachine", Name: of, UID: uid, Controller: new(true)},
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "lab", UID: "c"},
		},
	}, Spec: clusterv1.MachineSpec{ClusterName: "lab"}}
	if change != nil {
		change(m)
	}
	return m
}

func ownerOf(name string, uid types.UID) *v1alpha1.ScheduledMachine {
	return &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: name, UID: uid}, Spec: v1alpha1.ScheduledMachineSpec{ClusterName: "lab"}}
}

// collected removes the owner reference of a Machine, as the garbage collector does.
func collected(m *clusterv1.Machine) { m.OwnerReferences = m.OwnerReferences[1:] }

func beingDeleted(m *clusterv1.Machine) {
	m.DeletionTimestamp, m.Finalizers = new(metav1.Now()), []string{"test/hold"}
}

func cacheOf(t *testing.T, objs ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(server.Client.Scheme()).WithObjects(objs...).Build()
}

// orphansByCluster returns the metric by Cluster.
func orphansByCluster(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(departure.OrphanMachines); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[clusterOf(m)] = m.GetGauge().GetValue()
		}
	}
	return values
}

func clusterOf(m *dto.Metric) string {
	by := map[string]string{}
	for _, l := range m.GetLabel() {
		by[l.GetName()] = l.GetValue()
	}
	return by["namespace"] + "/" + by["cluster"]
}

func count(t *testing.T, r *departure.OrphanReconciler) error {
	t.Helper()
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "farm", Name: "lab"}})
	return err
}

func TestOrphansAreCounted(t *testing.T) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: "lab", Labels: map[string]string{clusterv1.WatchLabel: "a"}}}
	none, one, zero := map[string]float64{}, map[string]float64{farmLab: 1}, map[string]float64{farmLab: 0}
	for name, tc := range map[string]struct {
		reason  string
		filter  string
		objects []client.Object
		want    map[string]float64
	}{
		"Owned":     {"Its ScheduledMachine is there.", "", []client.Object{ownerOf("a", "1"), orphaned(nil)}, zero},
		"Gone":      {"Its ScheduledMachine is not.", "", []client.Object{ownerOf("b", "2"), orphaned(nil)}, one},
		"Another":   {"One of its name was made anew, or restored.", "", []client.Object{ownerOf("a", "2"), orphaned(nil)}, one},
		"Collected": {"The garbage collector has taken the reference off.", "", []client.Object{orphaned(collected)}, one},
		"Adopted":   {"Its label is enough to be adopted.", "", []client.Object{ownerOf("a", "2"), orphaned(collected)}, zero},
		"Leaving":   {"It is on its way.", "", []client.Object{orphaned(beingDeleted)}, zero},
		"Copied": {"A person copied our label.", "", []client.Object{orphaned(func(m *clusterv1.Machine) {
			collected(m)
			m.Name = "worker-1"
		})}, none},
		"MachineSet": {"It has another controller.", "", []client.Object{orphaned(func(m *clusterv1.Machine) {
			m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind = clusterv1.GroupVersion.String(), "MachineSet"
		})}, none},
		"OtherCluster": {"It is of another Cluster.", "", []client.Object{orphaned(func(m *clusterv1.Machine) { m.Spec.ClusterName = "prod" })}, none},
		"None":         {"There is nothing of ours.", "", nil, none},
		"Ours":         {"The Cluster is this manager's.", "a", []client.Object{cluster, orphaned(nil)}, one},
		"NotOurs":      {"The Cluster is another manager's.", "b", []client.Object{cluster, orphaned(nil)}, none},
		"NoCluster":    {"Without its Cluster, no manager serves it.", "a", []client.Object{orphaned(nil)}, none},
	} {
		t.Run(name, func(t *testing.T) {
			departure.OrphanMachines.Reset()
			if err := count(t, &departure.OrphanReconciler{Reader: cacheOf(t, tc.objects...), WatchFilter: tc.filter}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, orphansByCluster(t)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAListThatFailsIsNotZero checks that the metric keeps its value, and stays absent if it had none.
func TestAListThatFailsIsNotZero(t *testing.T) {
	departure.OrphanMachines.Reset()
	broken := errors.New("no answer")
	fails := ""
	c := interceptor.NewClient(cacheOf(t, orphaned(nil)), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, machines := list.(*clusterv1.MachineList); machines && fails == "Machines" || !machines && fails == "ScheduledMachines" {
				return broken
			}
			return c.List(ctx, list, opts...)
		},
	})
	r := &departure.OrphanReconciler{Reader: c}
	want := map[string]float64{}
	for _, fails = range []string{"Machines", "ScheduledMachines", "", "Machines", "ScheduledMachines"} {
		if err := count(t, r); (fails != "") != errors.Is(err, broken) {
			t.Fatalf("%q fails: %v", fails, err)
		}
		if fails == "" {
			want[farmLab] = 1
		}
		if diff := cmp.Diff(want, orphansByCluster(t)); diff != "" {
			t.Fatalf("%q fails: -want, +got:\n%s", fails, diff)
		}
	}
}

// TestChangesOfOrphansEnqueue checks that a status update by Cluster API does not enqueue.
func TestChangesOfOrphansEnqueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*clusterv1.Machine)
		wakes  bool
	}{
		"Status":    {func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, false},
		"Collected": {collected, true},
		"Leaving":   {beingDeleted, true},
		"Label": {func(m *clusterv1.Machine) {
			collected(m)
			m.Labels = nil
		}, true},
		"Adopted": {func(m *clusterv1.Machine) { m.OwnerReferences[0].UID = "2" }, true},
	} {
		before := orphaned(nil)
		after := orphaned(tc.change)
		if got := departure.MachineChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.wakes {
			t.Errorf("%s: wakes %t, want %t", name, got, tc.wakes)
		}
	}
	if departure.Exists().Update(event.UpdateEvent{ObjectOld: ownerOf("a", "1"), ObjectNew: ownerOf("a", "1")}) {
		t.Error("a ScheduledMachine that stays wakes")
	}
	if !departure.Exists().Update(event.UpdateEvent{ObjectOld: ownerOf("a", "1"), ObjectNew: ownerOf("a", "2")}) {
		t.Error("another ScheduledMachine of the name does not wake")
	}
}
