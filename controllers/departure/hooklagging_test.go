// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestEachHookIsRemovedOnceOnALateCache deletes Machines with a built-in step in both phases, while the cache
// shows each version of the Machine late.
func TestEachHookIsRemovedOnceOnALateCache(t *testing.T) {
	testenv.OnLateCaches(t, map[string]int{ // a hook per phase
		"sent: patch Machine": 2, "Event WaitingForLoadBalancers": 1, "audited as success": 2,
	}, func(seed uint64) map[string]int { return departureOnALateCache(t, seed) })
}

func departureOnALateCache(t *testing.T, seed uint64) map[string]int {
	t.Helper()
	cache, now := departing(t, seed)
	lines, recorder := &bytes.Buffer{}, events.NewFakeRecorder(100)
	step := &balancers{says: leaving.Verdict{Holds: true, Reason: v1alpha1.WaitingForLoadBalancersReason, Note: "load balancer edge: 3 connections"}}
	r := &departure.HookReconciler{
		Clock: now, Reader: cache.Client, Live: cache.Client, Actuate: actuate.NewGated(&actuate.Gate{Log: audit.New(lines)}, cache.Client),
		Recorder: recorder, HookCaller: leaving.New(now), Steps: leaving.Steps{step},
	}
	machine := client.ObjectKey{Namespace: "lab", Name: children.NamesOf("box").Machine}
	holds := 20 // in reconciles
	cache.Settle(r, ctrl.Request{NamespacedName: machine}, now, func(ctrl.Result) bool {
		if holds--; holds == 0 {
			step.says = leaving.Verdict{}
		}
		return drained(t, cache, machine, now.Now()) || holds >= 0
	})
	return cache.Counts(recorder, lines)
}

// departing returns a Machine of a ScheduledMachine that another client has deleted, and that the planner has admitted.
func departing(t *testing.T, seed uint64) (*testenv.Lagging, *clocktesting.FakePassiveClock) {
	t.Helper()
	sm := testenv.ScheduledMachine("lab", "box")
	sm.UID = "uid-of-sm"
	desired, err := children.Machine(sm, "", time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &clusterv1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, m); err != nil {
		t.Fatal(err)
	}
	m.UID, m.Finalizers, m.Status.NodeRef.Name = "uid-of-machine", []string{clusterv1.MachineFinalizer}, "box"
	children.SetDeparture(m, v1alpha1.NewDeparture(v1alpha1.DeletedByOthers, time.Now(), "a"))
	store := fake.NewClientBuilder().WithScheme(server.Client.Scheme()).WithStatusSubresource(&clusterv1.Machine{}).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, index.MachineByNodeName).WithObjects(testenv.Cluster("lab"), sm, m).Build()
	if err := store.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return testenv.NewLagging(t, store, seed), clocktesting.NewFakePassiveClock(time.Now())
}

// drained does the part of Cluster API, and reports whether it changed the Machine.
func drained(t *testing.T, cache *testenv.Lagging, machine client.ObjectKey, now time.Time) bool {
	t.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: machine.Namespace, Name: machine.Name}}
	if !cache.CaughtUp() {
		return false // Cluster API has not reconciled yet.
	}
	if err := cache.Client.Get(t.Context(), machine, m); err != nil {
		t.Fatal(err)
	}
	if _, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]; held || m.Status.Deletion != nil {
		return false
	}
	before := m.DeepCopy()
	m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: metav1.NewTime(now)}
	if err := cache.Client.Status().Patch(t.Context(), m, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return true
}
