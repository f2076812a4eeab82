// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// wrote returns the writes since the last call, and the reasons of Events.
func (w *world) wrote() []string {
	w.Helper()
	out := w.Writes
	w.Writes = nil
	for {
		select {
		case e := <-w.recorder.Events:
			out = append(out, "event "+strings.Join(strings.Fields(e)[:2], " "))
		default:
			return out
		}
	}
}

// costs checks the writes since the last call.
func (w *world) costs(what string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.wrote()); diff != "" {
		w.Errorf("%s: -want, +got:\n%s", what, diff)
	}
}

// says sets a condition of the Machine twice within a second, as Cluster API does during most transitions. It
// reconciles after each.
func (w *world) says(condition string, messages ...string) {
	w.Helper()
	for _, message := range messages {
		m, _ := w.machine()
		before := m.DeepCopy()
		status := metav1.ConditionFalse
		if condition == clusterv1.MachineDeletingCondition {
			status = metav1.ConditionTrue
		}
		conditions.Set(m, metav1.Condition{Type: condition, Status: status, Reason: "NotReady", Message: message})
		w.Must(w.Client.Status().Patch(w.Context(), m, client.MergeFrom(before)))
		w.settle()
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
}

// TestAPIRequestsOfAMachinesLife lists all writes of a machine that joins and leaves within seconds. Each additional
// write is a write for each machine every day: see docs/benchmarks.md.
func TestAPIRequestsOfAMachinesLife(t *testing.T) {
	w := newWorld(t, nil)
	w.settle()
	w.costs("an object comes",
		"patch ScheduledMachine", // finalizer, label, owner
		"patch ScheduledMachine status", "patch ScheduledMachine status",
		"event Normal Pending", "event Normal Inactive")

	w.clock.SetTime(monday.Add(time.Second))
	w.settle()
	w.costs("its window opens",
		"create GenericBootstrapConfig", "create GenericInfrastructureMachine", "apply Machine",
		"patch ScheduledMachine status", "event Normal MachineNotReady")
	w.says(clusterv1.ReadyCondition, "waiting for bootstrap data", "waiting for infrastructure", "waiting for the Node")
	w.costs("it joins")
	m, _ := w.machine()
	w.hold(m)
	i, _ := w.infra()
	w.hold(i)
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
	w.settle()
	w.costs("it is ready", "patch ScheduledMachine status", "apply Machine status", "event Normal MachineRunning")

	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	w.costs("its window ends",
		"patch Machine", // the request
		"patch Machine", // the admission, which removes our hooks
		"delete Machine",
		"patch ScheduledMachine status", "event Normal ShuttingDown")
	w.says(clusterv1.MachineDeletingCondition, "draining", "waiting for infrastructure", "waiting for bootstrap")
	w.costs("it leaves")
	w.gone()
	w.settle()
	w.costs("it is gone", "patch ScheduledMachine status", "event Normal Inactive")
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.settle()
	w.costs("nothing happens")
}

// TestAcceptedHostDataIsWrittenAtOnce sets the host of a joining machine. Later host data is checked against the
// accepted data, also by another manager.
func TestAcceptedHostDataIsWrittenAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	w.says(clusterv1.ReadyCondition, "waiting for infrastructure")
	w.wrote()
	m, _ := w.machine()
	before := m.DeepCopy()
	m.Spec.ProviderID = "test://box"
	w.Must(w.Client.Patch(w.Context(), m, client.MergeFrom(before)))
	w.settle()
	w.costs("it has a host", "patch ScheduledMachine status")
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionFalse, "NotReady", "waiting for the Node")
	w.settle()
	w.costs("it has a Node", "patch ScheduledMachine status")
	if st := w.sm.Status; st.ProviderID != "test://box" || st.NodeRef == nil || st.NodeRef.Name != w.sm.Name+"-node" {
		t.Errorf("accepted are %q and %+v", st.ProviderID, st.NodeRef)
	}
}

// TestProgressIsReportedOnceItCanBeRead covers a new manager, too.
func TestProgressIsReportedOnceItCanBeRead(t *testing.T) {
	for name, restart := range map[string]bool{"": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.clock.SetTime(monday.Add(time.Hour))
			w.settle()
			w.says(clusterv1.ReadyCondition, "one", "two")
			if restart {
				w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
				w.clock.SetTime(w.clock.Now().Add(-2 * time.Second))
			}
			w.wrote()
			next := w.settle()
			if want := 8 * time.Second; !restart && next != want || restart && next != 10*time.Second {
				t.Errorf("the next look is in %v", next)
			}
			w.costs("before")
			w.clock.SetTime(w.clock.Now().Add(next))
			w.settle()
			w.costs("then", "patch ScheduledMachine status")
			if got := w.sm.Status.Message; !strings.Contains(got, "two") {
				t.Errorf("the message is %q", got)
			}
		})
	}
}

// TestOnlyProgressIsDeferred covers actions of people, failures, and the end of a budget.
func TestOnlyProgressIsDeferred(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "10m" })
	w.running()
	m, _ := w.machine()
	w.wrote()
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionFalse, "NotReady", "the Node is lost")
	w.settle()
	w.costs("not ready any more", "patch ScheduledMachine status")
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionFalse, "NotReady", "and its disk is full")
	w.settle()
	w.costs("progress")
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Priority = new(int32(7)) })
	w.settle()
	w.costs("an edit", "patch ScheduledMachine status")
	if got := w.sm.Status.Message; !strings.Contains(got, "disk is full") {
		t.Errorf("the message is %q", got)
	}
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
	w.settle()
	w.wrote()
	w.report(m, clusterv1.MachineDeletingCondition, metav1.ConditionTrue, "DrainingNode", "cannot evict")
	w.settle()
	w.costs("the budget is over", "patch ScheduledMachine status")
}

// TestOurHooksGoBeforeTheMachine checks that the hooks are removed first if no extension applies. Cluster API then
// reconciles the Machine once.
func TestOurHooksGoBeforeTheMachine(t *testing.T) {
	for name, extension := range map[string]bool{"NoExtension": false, "Extension": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.running()
			if extension {
				w.addExtension()
			}
			w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
			w.settle()
			m, _ := w.machine()
			_, drain := m.Annotations[v1alpha1.PreDrainHookAnnotation]
			_, terminate := m.Annotations[v1alpha1.PreTerminateHookAnnotation]
			_, marked := m.Annotations[v1alpha1.DepartureAnnotation]
			if m.DeletionTimestamp.IsZero() || drain != extension || terminate != extension || !marked {
				t.Errorf("being deleted %t, with hooks %t, %t, marked %t", !m.DeletionTimestamp.IsZero(), drain, terminate, marked)
			}
		})
	}
}

// addExtension registers an extension for all namespaces until the test ends.
func (w *world) addExtension() {
	w.Helper()
	hook := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{Name: w.sm.Namespace}}
	hook.Spec.ClientConfig.URL = "https://extension.test"
	hook.Spec.ClientConfig.CABundle = []byte("bundle")
	hook.Spec.DeadlineSeconds = 60
	w.Create(hook)
	w.Cleanup(func() { _ = w.Client.Delete(context.Background(), hook) })
}

// TestCreatedObjectsAreNotCreatedAgain checks that the controller waits for the event of a created object. A cache
// without the object would cause a second create, which fails.
func TestCreatedObjectsAreNotCreatedAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.settle()
	w.clock.SetTime(monday.Add(time.Second))
	w.wrote()
	next := w.reconcile().RequeueAfter
	w.costs("the first step", "create GenericBootstrapConfig")
	if next < wake.QuietRetry || next > time.Second {
		t.Errorf("the next look is in %v: want one that leaves the cache its time", next)
	}
}
