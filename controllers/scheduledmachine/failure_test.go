// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

func requestFor(sm *v1alpha1.ScheduledMachine) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)}
}

func TestForeignObjectIsNeverTouched(t *testing.T) {
	for name, field := range map[string]string{"box-bootstrap": "bootstrapSpec", "box-infra": "infrastructureSpec", "box-machine": "machineTemplate"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			foreign := foreignObject(w, name)
			w.Create(foreign)
			version := foreign.GetResourceVersion()
			w.clock.SetTime(monday.Add(time.Hour))
			w.settle()
			w.want(v1alpha1.PhaseError, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason)
			got := conditions.GetMessage(w.sm, v1alpha1.ReferencesValidCondition)
			if !strings.Contains(got, "spec."+field+": ") || !strings.Contains(got, name+" exists but does not belong to this ScheduledMachine") {
				t.Errorf("the message does not contain the field and the object: %q", got)
			}
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
			w.settle()
			w.want(v1alpha1.PhaseTerminated, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.TerminatedReason)
			if !w.sm.Status.InSchedule {
				t.Error("status.inSchedule is false in the window")
			}
			if !w.Read(foreign) || foreign.GetResourceVersion() != version || !foreign.GetDeletionTimestamp().IsZero() {
				t.Errorf("touched: %+v", foreign)
			}
			w.Must(w.Client.Delete(t.Context(), foreign))
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = false })
			w.settle()
			w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
		})
	}
}

func foreignObject(w *world, name string) client.Object {
	if name == "box-machine" {
		m, _ := w.machine()
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "lab"}
		m.Spec.ClusterName = "lab"
		m.Spec.Bootstrap.DataSecretName = new("secret")
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "X", Name: "x"}
		return m
	}
	spec := w.sm.Spec.BootstrapSpec
	if name == "box-infra" {
		spec = w.sm.Spec.InfrastructureSpec
	}
	u, _ := w.child(spec, name)
	return u
}

func TestKindThatIsNotInstalled(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "NoSuchMachine" })
	w.clock.SetTime(monday.Add(time.Hour))
	if next := w.settle(); next != time.Second {
		t.Errorf("first retry in %v, want 1s", next)
	}
	w.want(v1alpha1.PhaseError, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason)
	got := conditions.GetMessage(w.sm, v1alpha1.ReferencesValidCondition)
	if want := "spec.infrastructureSpec: kind NoSuchMachine.infrastructure.cluster.x-k8s.io is not installed"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, ok := w.bootstrap(); ok {
		t.Error("half of it was made")
	}
}

func TestBackoffDoublesToFiveMinutesAndNeverPassesAnEdge(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "NoSuchMachine" })
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	for _, want := range []float64{2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		if got := w.reconcile().RequeueAfter.Seconds(); got != want {
			t.Fatalf("retry in %v s, want %v s", got, want)
		}
	}
	w.clock.SetTime(monday.Add(9 * time.Hour)) // one second before the window ends
	if got := w.reconcile().RequeueAfter; got != time.Second {
		t.Errorf("retry in %v, want the edge in 1s", got)
	}
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	w.want(v1alpha1.PhaseInactive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.InactiveReason)
}

func TestEditsApplyAtTheNextWindow(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	i, _ := w.infra()
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.InfrastructureSpec.Spec = runtime.RawExtension{Raw: []byte(`{"address":"192.0.2.2"}`)}
	})
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
	for _, got := range []string{w.sm.Status.Message, conditions.GetMessage(w.sm, v1alpha1.ReferencesValidCondition)} {
		if !strings.Contains(got, "edits of spec.infrastructureSpec apply at the next window") {
			t.Errorf("the status does not say so: %q", got)
		}
	}
	if again, _ := w.infra(); again.GetResourceVersion() != i.GetResourceVersion() {
		t.Error("applied at once")
	}
}

func TestEditOfTheKindOrphansNothing(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "NoSuchMachine" })
	old := w.sm.Spec.BootstrapSpec
	w.clock.SetTime(monday.Add(time.Hour))
	// The bootstrap config was created before the infrastructure's kind was removed.
	b, _ := w.bootstrap()
	b.SetLabels(map[string]string{v1alpha1.ScheduledMachineLabel: "box"})
	w.Must(w.Client.Create(t.Context(), b))
	w.settle()
	if w.sm.Status.BootstrapRef == nil {
		t.Fatal("what exists is not reported")
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{APIVersion: "k0smotron.io/v1beta1", Kind: "GenericBootstrapConfig"}
		sm.Spec.InfrastructureSpec.Kind = "GenericInfrastructureMachine"
	})
	w.settle()
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{APIVersion: old.APIVersion, Kind: old.Kind, Spec: runtime.RawExtension{Raw: []byte(`{"x":1}`)}}
	})
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
	if again, _ := w.bootstrap(); again.GetUID() == b.GetUID() {
		t.Error("the bootstrap config of the older spec is used")
	}
}

func TestMissingClusterWaits(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.ClusterName = "later" })
	w.clock.SetTime(monday.Add(time.Hour))
	if next := w.settle(); next != 8*time.Hour+time.Second {
		t.Errorf("polls for the Cluster: next look in %v", next)
	}
	w.want(v1alpha1.PhasePending, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason)
	if got, want := w.sm.Status.Message, "spec.clusterName: Cluster later does not exist"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	w.Create(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "later"}, Spec: testenv.Cluster(w.sm.Namespace).Spec})
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReferencesValidCondition, metav1.ConditionTrue, v1alpha1.ReferencesValidReason)
}

func TestSettledWritesNothing(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ScheduledMachine){
		"Active":     nil,
		"Inactive":   func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"22"} },
		"Disabled":   func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) },
		"Terminated": func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			if change == nil {
				w.running()
			}
			w.clock.SetTime(monday.Add(time.Hour))
			w.settle()
			w.Writes = nil
			for range 3 {
				w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
				w.reconcile()
			}
			if len(w.Writes) != 0 {
				t.Errorf("%v", w.Writes)
			}
		})
	}
}

// TestCrashPoints covers the life of a machine from joining to the kill switch. It stops the controller before each
// write, and after each write with the response lost, and restarts it. Each run must end like the run without a crash.
func TestCrashPoints(t *testing.T) { testenv.CrashPoints(t, 14, life) }

// life runs a machine through its life and returns the observed states.
func life(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w := newWorld(t, nil)
	w.Fail = fail
	run := func() {
		for range 12 {
			w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
			if next := w.settle(); next != time.Second {
				return // neither at once nor after a failure
			}
		}
		t.Fatalf("does not settle: %+v", w.sm.Status)
	}
	announce := func() {
		m, machine := w.machine()
		_, infra := w.infra()
		_, bootstrap := w.bootstrap()
		stations = append(stations, fmt.Sprintf("%s %s machine=%t leaving=%t infra=%t bootstrap=%t finalizers=%v",
			w.sm.Status.Phase, conditions.GetReason(w.sm, v1alpha1.ReadyCondition), machine, !m.DeletionTimestamp.IsZero(), infra, bootstrap, w.sm.Finalizers))
	}
	w.clock.SetTime(monday.Add(time.Hour))
	run()
	announce()
	m, _ := w.machine()
	w.hold(m)
	i, _ := w.infra()
	w.hold(i)
	w.clock.SetTime(monday.Add(10 * time.Hour))
	run()
	announce()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	run()
	announce()
	w.gone()
	run()
	announce()
	return stations, len(w.Writes)
}
