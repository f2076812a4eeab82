// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

const (
	applied = v1alpha1.VariableAppliedReason
	leaving = v1alpha1.MachinesDeletingReason
	invalid = v1alpha1.VariableInvalidReason
	taken   = v1alpha1.NameConflictReason
)

func TestMachinesFollowTheVariable(t *testing.T) {
	w := newWorld(t, item("a", "9-17"), item("b", "19-6", `"priority":7`))
	w.reconcile()
	w.want("a:9-17 b:19-6", applied, "the 2 ScheduledMachines")
	b := w.machine("b")
	if b.Labels[clusterv1.ClusterNameLabel] != "lab" || *b.Spec.Priority != 7 || b.Spec.InfrastructureTemplateRef.Name != "desks" ||
		len(b.OwnerReferences) != 1 || b.OwnerReferences[0].UID != w.cluster.UID || b.OwnerReferences[0].Controller != nil {
		t.Errorf("%+v", b)
	}
	w.wantQuiet()

	a := w.machine("a")
	w.setItems(item("a", "9-17"), item("b", "20-6"))
	w.reconcile()
	w.want("a:9-17 b:20-6", applied, "")
	if *w.machine("b").Spec.Priority != 50 {
		t.Error("what the variable no longer says has its default")
	}
	if w.machine("a").ResourceVersion != a.ResourceVersion {
		t.Error("the other one was written")
	}
	w.wantQuiet()

	w.hold("b")
	w.setItems(item("a", "9-17"), item("c", "20-6"))
	w.reconcile()
	w.want("-b:20-6 a:9-17 c:20-6", leaving, "are leaving: lab-b")
	w.wantQuiet()
	w.setItems(item("a", "9-17"), item("b", "8"), item("c", "20-6"))
	w.reconcile()
	w.want("-b:20-6 a:9-17 c:20-6", leaving, "lab-b")
	w.letGo("b")
	w.reconcile()
	w.want("a:9-17 b:8 c:20-6", applied, "the 3 ScheduledMachines")

	w.setItems()
	w.reconcile()
	w.reconcile()
	w.want("", applied, "the 0 ScheduledMachines")
	w.wantQuiet()
}

func TestVariableTakenAwayTakesItsMachines(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	w.Edit(w.cluster, func() { w.cluster.Spec.Topology.Variables = nil })
	w.reconcile()
	w.want("", leaving, "lab-a")
	w.reconcile()
	w.want("", "", "")
	w.wantQuiet()
	if !conditions.IsTrue(w.cluster, clusterv1.AvailableCondition) {
		t.Errorf("a condition of another controller is gone: %+v", w.cluster.Status.Conditions)
	}
}

func TestSwitchesBelongToPeopleAndOwners(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	ours := ""
	for _, e := range w.machine("a").ManagedFields {
		if e.Manager == v1alpha1.TopologyFieldManager {
			ours += e.FieldsV1.GetRawString()
		}
	}
	if !strings.Contains(ours, "f:hoursOfDay") || strings.Contains(ours, "f:enabled") || strings.Contains(ours, "f:killSwitch") {
		t.Errorf("the schedule is ours, the switches are not: %s", ours)
	}
	a := w.machine("a")
	w.Edit(a, func() { a.Spec.Schedule.Enabled, a.Spec.KillSwitch = new(false), true })
	w.wantQuiet()
	w.setItems(item("a", "10"))
	w.reconcile()
	w.want("a:10", applied, "")
	if a := w.machine("a"); a.ScheduleEnabled() || !a.Spec.KillSwitch {
		t.Errorf("switched: %+v", a.Spec)
	}
}

func TestEditsOfMachinesAreUndone(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	a := w.machine("a")
	w.Edit(a, func() {
		a.Spec.Schedule.HoursOfDay = []string{"0-23"}
		a.Spec.NodeTaints = []v1alpha1.NodeTaint{{Key: "mine", Effect: "NoSchedule"}}
		a.Labels["mine"] = "stays"
		delete(a.Labels, clusterv1.ClusterNameLabel)
	})
	w.reconcile()
	w.want("a:9-17", applied, "")
	if a := w.machine("a"); len(a.Spec.NodeTaints) > 0 || a.Labels["mine"] != "stays" || a.Labels[clusterv1.ClusterNameLabel] != "lab" {
		t.Errorf("%+v", a)
	}
	w.wantQuiet()
}

// TestMovedMachinesAreKept covers objects after clusterctl move, which owns all their fields.
func TestMovedMachinesAreKept(t *testing.T) {
	w := newWorld(t, item("a", "9-17", `"nodeTaints":[{"key":"x","effect":"NoSchedule"}]`, `"machineTemplate":{"labels":{"x":"y"}}`))
	w.reconcile()
	a := w.machine("a")
	w.Must(w.Client.Delete(t.Context(), a))
	a.ResourceVersion, a.UID, a.ManagedFields = "", "", nil
	a.Spec.Schedule.Enabled = new(false)
	w.Must(w.Client.Create(t.Context(), a, client.FieldOwner("clusterctl")))
	w.wantQuiet()
	w.setItems(item("a", "10"))
	w.reconcile()
	w.want("a:10", applied, "")
	if a := w.machine("a"); len(a.Spec.NodeTaints) > 0 || len(a.Spec.MachineTemplate.Labels) > 0 || a.ScheduleEnabled() {
		t.Errorf("%+v", a.Spec)
	}
	w.wantQuiet()
}

func TestInvalidVariableChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct{ value, says string }{
		"Hours":   {list(item("a", "9-24")), "scheduledMachines[0].schedule.hoursOfDay[0]"},
		"Unknown": {list(item("a", "9-17", `"x":1`)), `unknown field "x"`},
		"Twice":   {list(item("c", "1"), item("c", "1")), "scheduledMachines[1].name: Duplicate value"},
		"NoList":  {`{}`, "must be a list"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, item("a", "9-17"), item("b", "19-6"))
			w.reconcile()
			w.Edit(w.cluster, func() { w.cluster.Spec.Topology.Variables = variables(tc.value) })
			w.reconcile()
			w.want("a:9-17 b:19-6", invalid, tc.says)
			w.wantQuiet()
			w.setItems(item("a", "10"))
			w.reconcile()
			w.want("a:10", leaving, "lab-b")
		})
	}
}

func TestMachinesOfOthersAreLeftAlone(t *testing.T) {
	w := newWorld(t, item("a", "9-17"), item("b", "9-17"), item("c", "9-17"))
	theirs := testenv.ScheduledMachine(w.cluster.Namespace, "lab-a")
	other := testenv.ScheduledMachine(w.cluster.Namespace, "lab-b")
	other.Spec.ClusterName, other.Labels = "other", map[string]string{v1alpha1.TopologyOwnedLabel: ""}
	w.Create(theirs, other)
	if _, err := w.try(); err == nil {
		t.Error("it is not tried again")
	}
	w.want("a:0-23 b:0-23 c:9-17", taken, "ScheduledMachine lab-a exists but does not belong to this topology")
	w.wantQuiet()

	w.Must(w.Client.Delete(t.Context(), theirs))
	w.Must(w.Client.Delete(t.Context(), other))
	w.reconcile()
	w.want("a:9-17 b:9-17 c:9-17", applied, "")

	a := w.machine("a")
	w.Edit(a, func() { delete(a.Labels, v1alpha1.TopologyOwnedLabel) })
	w.setItems(item("b", "9-17"), item("c", "9-17"))
	w.reconcile()
	w.want("a:9-17 b:9-17 c:9-17", applied, "")
}

func TestNothingIsTouched(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
	}{
		"Paused":    {"As in all of Cluster API.", func(w *world) { w.cluster.Spec.Paused = new(true) }},
		"Annotated": {"The same.", func(w *world) { w.cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
		"NoTopology": {"It asks for nothing, and not for none.", func(w *world) {
			w.cluster.Spec = clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "lab.test", Port: 6443}}
		}},
		"Other": {"It is another manager's.", func(w *world) { w.r.WithWatchFilter("mine") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, item("a", "9-17"))
			w.reconcile()
			w.Edit(w.cluster, func() {
				w.cluster.Spec.Topology.Variables = variables("[]")
				tc.change(w)
			})
			w.wantQuiet()
			w.want("a:9-17", applied, "")
		})
	}
}

func TestLeavingClusterIsLeftToItself(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.reconcile()
	w.Edit(w.cluster, func() {
		w.cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
		w.cluster.Spec.Topology.Variables = variables("[]")
	})
	w.Must(w.Client.Delete(t.Context(), w.cluster))
	w.wantQuiet()
	w.want("a:9-17", applied, "")
	w.Edit(w.cluster, func() { w.cluster.Finalizers = nil })
}

func TestPausedMachineIsLeftAlone(t *testing.T) {
	w := newWorld(t, item("a", "9-17"), item("b", "9-17"))
	w.reconcile()
	for _, sm := range []*v1alpha1.ScheduledMachine{w.machine("a"), w.machine("b")} {
		w.Edit(sm, func() { sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	}
	w.reconcile()
	w.want("a:9-17 b:9-17", applied, "")
	w.setItems(item("a", "10"))
	w.reconcile()
	w.want("a:9-17 b:9-17", v1alpha1.MachinesPausedReason, "lab-a, lab-b")
	w.wantQuiet()
	for _, sm := range []*v1alpha1.ScheduledMachine{w.machine("a"), w.machine("b")} {
		w.Edit(sm, func() { sm.Annotations = nil })
	}
	w.reconcile()
	w.want("a:10", leaving, "lab-b")
}

func TestMachinesAreOfTheManagerOfTheirCluster(t *testing.T) {
	w := newWorld(t, item("a", "9-17"))
	w.Edit(w.cluster, func() { w.cluster.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })
	w.r.WithWatchFilter("mine")
	w.reconcile()
	if got := w.machine("a").Labels[clusterv1.WatchLabel]; got != "mine" {
		t.Errorf("no controller would own it: %q", got)
	}
}

// TestOldListDeletesNothing uses a cache that shows the Cluster before the machine was added.
func TestOldListDeletesNothing(t *testing.T) {
	w := newWorld(t, []string{}...)
	w.Edit(w.cluster, func() { w.cluster.Spec.Topology.Variables = variables("[]") })
	old := w.cluster.DeepCopy()
	w.setItems(item("a", "9-17"))
	w.reconcile()
	w.Writes = nil
	w.wantNothingOf(old)
}

func TestEachChangeIsAnnouncedOnce(t *testing.T) {
	w := newWorld(t, item("a", "9-24"))
	w.reconcile()
	w.reconcile()
	w.setItems(item("a", "9-17"))
	w.reconcile()
	w.reconcile()
	close(w.recorder.Events)
	var got []string
	for e := range w.recorder.Events {
		kind, rest, _ := strings.Cut(e, " ")
		reason, _, _ := strings.Cut(rest, " ")
		got = append(got, kind+" "+reason)
	}
	if want := "Warning VariableInvalid, Normal VariableApplied"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCrashPoints stops the controller before each write, and after each write with the response lost. Machines are
// added, changed, renamed and removed.
func TestCrashPoints(t *testing.T) {
	testenv.CrashPoints(t, 13, func(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
		t.Helper()
		w := newWorld(t, item("a", "9-17"), item("b", "9-17"))
		w.Fail = fail
		report := func() {
			stations = append(stations, w.machines()+" "+w.conditionText())
		}
		w.settle()
		report()
		for _, items := range [][]string{{item("a", "10"), item("b", "9-17")}, {item("a", "10"), item("c", "9-17")}, {}} {
			w.setItems(items...)
			w.settle()
			w.settle() // The deletion of a machine triggers a reconcile.
			report()
		}
		return stations, len(w.Writes)
	})
}
