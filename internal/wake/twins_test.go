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

// machine returns the Machine of ScheduledMachine sm in a Cluster, on Node desk.
func machine(sm, namespace, cluster string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sm + "-machine", Labels: map[string]string{v1alpha1.ScheduledMachineLabel: sm}},
		Spec:       clusterv1.MachineSpec{ClusterName: cluster},
		Status:     clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "desk"}},
	}
}

// on changes the Node and the provider ID of a Machine.
func on(m *clusterv1.Machine, node, providerID string) *clusterv1.Machine {
	m.Status.NodeRef.Name, m.Spec.ProviderID = node, providerID
	return m
}

// believes returns a ScheduledMachine whose status has a Node.
func believes(name, namespace, cluster, node string) *v1alpha1.ScheduledMachine {
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	sm.Spec.ClusterName, sm.Status.NodeRef = cluster, &v1alpha1.NodeReference{Name: node}
	return sm
}

// mapper returns a Mapper with an indexed cache of these objects.
func mapper(objs ...client.Object) wake.Mapper {
	scheme := runtime.NewScheme()
	_, _ = clusterv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, func(o client.Object) []string {
			return []string{o.(*clusterv1.Machine).Status.NodeRef.Name}
		}).
		WithIndex(&clusterv1.Machine{}, index.MachineProviderIDField, func(o client.Object) []string {
			return []string{o.(*clusterv1.Machine).Spec.ProviderID}
		}).
		WithIndex(&v1alpha1.ScheduledMachine{}, wake.NodeIndex, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ScheduledMachine).Status.NodeRef.Name}
		}).Build()
	return wake.Mapper{Reader: c}
}

// woken returns the requests for Node desk of Cluster lab/c.
func woken(t *testing.T, objs ...client.Object) []ctrl.Request {
	t.Helper()
	return wokenBy(t, "desk", objs...)
}

func wokenBy(t *testing.T, node string, objs ...client.Object) []ctrl.Request {
	t.Helper()
	return mapper(objs...).OfNode(t.Context(), client.ObjectKey{Namespace: "lab", Name: "c"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
}

// names returns the sorted names of ScheduledMachines, which must be in namespace lab, without duplicates.
func names(t *testing.T, requests []ctrl.Request) []string {
	t.Helper()
	var names []string
	for _, req := range requests {
		if req.Namespace != "lab" {
			t.Errorf("woken: %s", req)
		}
		names = append(names, req.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestBothNodesOfAMachineWakeIt checks the Node that the Machine reports and the Node in the status.
func TestBothNodesOfAMachineWakeIt(t *testing.T) {
	objs := []client.Object{machine("a", "lab", "c"), believes("a", "lab", "c", "first"), believes("b", "lab", "other", "first"), believes("c", "elsewhere", "c", "first")}
	for _, node := range []string{"desk", "first"} {
		if got := names(t, wokenBy(t, node, objs...)); !slices.Equal(got, []string{"a"}) {
			t.Errorf("Node %s wakes %v", node, got)
		}
	}
}

// TestAMachineWakesWhoNamesItsHost checks that a Machine enqueues the ScheduledMachines of the same host. Their
// reports may be accepted after a change of this Machine.
func TestAMachineWakesWhoNamesItsHost(t *testing.T) {
	self := on(machine("a", "lab", "c"), "desk", "lab://1")
	for name, tc := range map[string]struct {
		reason string
		change *clusterv1.Machine
		want   []string
	}{
		"Both":      {"One has the Node, another one the ID.", self, []string{"a", "node", "provider"}},
		"NoNode":    {"Only the ID is the same.", on(self.DeepCopy(), "", "lab://1"), []string{"a", "provider"}},
		"NoID":      {"Only the Node is the same.", on(self.DeepCopy(), "desk", ""), []string{"a", "node"}},
		"Nothing":   {"Machines that have neither are not of one host.", on(self.DeepCopy(), "", ""), []string{"a"}},
		"NotOurs":   {"One that is not ours makes way for ours.", on(machine("", "lab", "c"), "desk", "lab://1"), []string{"a", "node", "provider"}},
		"OtherHost": {"No other Machine names that host.", on(self.DeepCopy(), "elsewhere", "lab://2"), []string{"a"}},
	} {
		m := mapper(
			self.DeepCopy(), on(machine("node", "lab", "c"), "desk", "lab://3"), on(machine("provider", "lab", "c"), "rack", "lab://1"),
			on(machine("neither", "lab", "c"), "", ""), on(machine("", "lab", "c"), "desk", "lab://1"), on(machine("far", "elsewhere", "c"), "desk", "lab://1"),
		)
		if got := names(t, m.OfHost(t.Context(), tc.change)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: woken: %v, want %v: %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestANodeOfTwoMachinesWakesBoth(t *testing.T) {
	if got := woken(t, machine("a", "lab", "c"), machine("b", "lab", "c")); len(got) != 2 {
		t.Fatalf("woken: %v", got)
	}
}

// TestANodeIsOfItsClusterAlone has two workload clusters with a Node of the same name.
func TestANodeIsOfItsClusterAlone(t *testing.T) {
	got := woken(t, machine("a", "lab", "c"), machine("b", "lab", "other"), machine("c", "elsewhere", "c"))
	if want := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "lab", Name: "a"}}}; !slices.Equal(got, want) {
		t.Errorf("woken: %v, want %v", got, want)
	}
}

// TestWhatOfAMachineConcernsItsNode checks which changes of a Machine enqueue. Its status changes often, and
// each reconcile reads a Node from another cluster.
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
