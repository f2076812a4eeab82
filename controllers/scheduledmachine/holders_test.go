// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// messages checks that the message of a condition contains all parts.
func (w *world) messages(condition string, parts ...string) {
	w.Helper()
	got := conditions.GetMessage(w.sm, condition)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			w.Errorf("%s lacks %q: %q", condition, part, got)
		}
	}
}

// TestADepartureNamesItsHolders covers a deleted Machine that waits for others. Cluster API's own message names no
// finalizer and no owner of a hook.
func TestADepartureNamesItsHolders(t *testing.T) {
	const hook = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup"
	w := newWorld(t, nil)
	w.running()
	m, _ := w.machine()
	w.Edit(m, func() { m.Annotations[hook] = "backup-operator" })
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	for _, tc := range []struct {
		reason string
		want   []string
	}{
		{clusterv1.MachineDeletingWaitingForPreTerminateHookReason, []string{"backup (owner: backup-operator)"}},
		{clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason, []string{"GenericInfrastructureMachine box-infra (finalizers: test/hold)"}},
		{clusterv1.MachineDeletingWaitingForBootstrapDeletionReason, []string{"GenericBootstrapConfig box-bootstrap"}},
		{clusterv1.MachineDeletingDeletionCompletedReason, []string{"Machine box-machine is held by the finalizers of others: test/hold"}},
	} {
		m, _ = w.machine()
		w.report(m, clusterv1.MachineDeletingCondition, metav1.ConditionTrue, tc.reason, "said by Cluster API")
		w.settle()
		w.clock.SetTime(w.clock.Now().Add(20 * time.Second)) // Progress is reported after 10 s.
		w.settle()
		w.messages(v1alpha1.MachineReadyCondition, tc.want...)
		w.messages(v1alpha1.ReadyCondition, append(tc.want, "Machine is leaving since 2025-01-20T18:00:00Z because its window is closed, its budget ends at 2025-01-20T18:05:00Z: said by")...)
	}
	w.clock.SetTime(monday.Add(9*time.Hour + 5*time.Minute + time.Second))
	w.settle()
	w.messages(v1alpha1.ReadyCondition, "its budget ended at 2025-01-20T18:05:00Z")
}

// TestPrunedFieldsAreReported uses a provider API that prunes an unknown field.
func TestPrunedFieldsAreReported(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.InfrastructureSpec.Spec.Raw = []byte(`{"addr":"192.0.2.1","port":22}`)
	})
	w.running()
	infra, _ := w.infra()
	w.Edit(infra, func() { unstructured.RemoveNestedField(infra.Object, "spec", "addr") })
	w.settle()
	const want = "the provider's API did not store spec.infrastructureSpec.spec.addr: check the spelling"
	w.messages(v1alpha1.ReadyCondition, "Machine is healthy and running: "+want)
	w.messages(v1alpha1.ReferencesValidCondition, want)
	w.Writes = nil
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("what is settled writes nothing: %v", w.Writes)
	}
}

// silent is a connected workload cluster whose health probes fail.
type silent struct {
	clustercache.ClusterCache

	failures int
	last     time.Time
}

func (c silent) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: c.last, LastProbeSuccessTime: c.last, ConsecutiveFailures: c.failures}
}

// TestFailedProbesAreReportedBeforeTheDisconnect covers the five failed probes before the cluster cache closes a
// connection.
func TestFailedProbesAreReportedBeforeTheDisconnect(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	healthy := w.r.ClusterCache
	for _, tc := range []struct {
		failures int
		status   metav1.ConditionStatus
		message  string
	}{
		{1, metav1.ConditionTrue, "watched"},
		{2, metav1.ConditionFalse, "The workload cluster has not answered since 2025-01-20T09:59:00Z: owners' requests are not seen. Check its API server"},
	} {
		w.r.ClusterCache = silent{healthy, tc.failures, monday.Add(time.Hour - 59*time.Second)}
		if again := w.settle(); again > 10*time.Second {
			t.Errorf("after %d failures it looks again in %s: nothing else wakes it when a probe succeeds", tc.failures, again)
		}
		w.want(v1alpha1.PhaseActive, v1alpha1.WorkloadClusterReachableCondition, tc.status, conditions.GetReason(w.sm, v1alpha1.WorkloadClusterReachableCondition))
		w.messages(v1alpha1.WorkloadClusterReachableCondition, tc.message)
	}
	w.r.ClusterCache = silent{clustercache.NewFakeEmptyClusterCache(), 6, monday.Add(time.Hour - 59*time.Second)}
	if again := w.settle(); again != 0 && again <= 10*time.Second {
		t.Errorf("without a connection it looks again in %s: the cluster cache sends an event when it connects", again)
	}
	w.r.ClusterCache = healthy
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.WorkloadClusterReachableCondition, metav1.ConditionTrue, v1alpha1.ConnectedReason)
}
