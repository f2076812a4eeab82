// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// machine is that of ScheduledMachine sm in a Cluster, on Node desk.
func machine(sm, namespace, cluster string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sm + "-machine", Labels: map[string]string{v1alpha1.ScheduledMachineLabel: sm}},
		Spec:       clusterv1.MachineSpec{ClusterName: cluster},
		Status:     clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "desk"}},
	}
}

// woken is whom Node desk of Cluster lab/c wakes.
func woken(t *testing.T, machines ...client.Object) []ctrl.Request {
	t.Helper()
	scheme := runtime.NewScheme()
	_ = clusterv1.AddToScheme(scheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machines...).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(o client.Object) []string {
			return []string{o.(*clusterv1.Machine).Status.NodeRef.Name}
		}).Build()
	return wake.Mapper{Reader: c}.OfNode(t.Context(), client.ObjectKey{Namespace: "lab", Name: "c"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "desk"}})
}

func TestANodeOfTwoMachinesWakesBoth(t *testing.T) {
	if got := woken(t, machine("a", "lab", "c"), machine("b", "lab", "c")); len(got) != 2 {
		t.Fatalf("woken: %v", got)
	}
}

// TestANodeIsOfItsClusterAlone has two workload clusters with a Node of one name: the
// owner of one asks for one machine.
func TestANodeIsOfItsClusterAlone(t *testing.T) {
	got := woken(t, machine("a", "lab", "c"), machine("b", "lab", "other"), machine("c", "elsewhere", "c"))
	if want := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "lab", Name: "a"}}}; !slices.Equal(got, want) {
		t.Errorf("woken: %v, want %v", got, want)
	}
}

// TestWhatOfAMachineConcernsItsNode has a Machine change. Its status changes all the time,
// and each look at a Node is one at another cluster.
func TestWhatOfAMachineConcernsItsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*clusterv1.Machine)
		want   bool
	}{
		"Nothing": {"The cache delivers it again.", func(*clusterv1.Machine) {}, false},
		"Status":  {"It counts for people.", func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, false},
		"Node":    {"It has another Node.", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "other" }, true},
		"NoNode":  {"Its Node is gone.", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }, true},
		"Leaves":  {"Its Node goes with it.", func(m *clusterv1.Machine) { m.DeletionTimestamp = new(metav1.Now()) }, true},
		"Another": {"One of the same name is another machine.", func(m *clusterv1.Machine) { m.UID = "2" }, true},
		"Parent":  {"It is another's.", func(m *clusterv1.Machine) { m.Labels[v1alpha1.ScheduledMachineLabel] = "b" }, true},
	} {
		before := machine("a", "lab", "c")
		before.UID = "1"
		after := before.DeepCopy()
		tc.change(after)
		if got := wake.NodeOfMachine().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v: %s", name, got, tc.reason)
		}
	}
	if p := wake.NodeOfMachine(); !p.Create(event.CreateEvent{}) || !p.Delete(event.DeleteEvent{}) {
		t.Error("a Machine that appears or goes matters")
	}
}
