// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestWhyShowsWhatDelaysARemoval checks the notes for the person on call.
func TestWhyShowsWhatDelaysARemoval(t *testing.T) {
	t.Parallel()
	const freeze, provider = "the API server refuses it: change freeze until monday", "Waiting for PlaneMachine to be deleted"
	status := func(conditions ...metav1.Condition) func(*v1alpha1.ScheduledMachine) {
		return func(m *v1alpha1.ScheduledMachine) {
			m.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: "office-machine"}
			m.Status.Phase, m.Status.Conditions = v1alpha1.PhaseEmergencyRemove, conditions
		}
	}
	record := v1alpha1.ReclaimRecord{Node: "n", NodeUID: "u", Reason: "process-match: java"}
	request := withRequest(record)
	kill := func(m *v1alpha1.ScheduledMachine) { m.Spec.KillSwitch = true }
	drains := func(reason, message string) func(*v1alpha1.ScheduledMachine) {
		return func(m *v1alpha1.ScheduledMachine) {
			status(condition(v1alpha1.MachineReadyCondition, metav1.ConditionFalse, reason, message))(m)
			m.Status.Phase = v1alpha1.PhaseShuttingDown
		}
	}
	cases := map[string]struct {
		reason  string
		m       *v1alpha1.ScheduledMachine
		notes   []string
		missing string
	}{
		"Refused": {
			"What refuses it comes first.",
			machine("office", request, status(
				condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimReason, record.Where()+": "+freeze),
				condition(v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "Deleting", provider))),
			[]string{"Note:      " + record.Where() + ": " + freeze, provider},
			"",
		},
		"ProviderHangs": {
			"What is known already is not said again.",
			machine("office", request, status(
				condition(v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimReason, record.Where()),
				condition(v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "Deleting", provider))),
			[]string{"Note:      " + provider},
			record.Where(),
		},
		"KillSwitch": {
			"It is removed in the same way.",
			machine("office", kill, status(condition(v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "Deleting", provider))),
			[]string{"Note:      " + provider},
			"",
		},
		"LoadBalancers": {
			"The advice shortens the wait.",
			machine("office", drains(v1alpha1.WaitingForLoadBalancersReason, "load balancer edge: web/ws-1 has 3 connections")),
			[]string{"load balancer edge: web/ws-1 has 3 connections", "docs/load-balancers.md"},
			"docs/operators.md",
		},
		"Operators": {
			"The advice is the one about operators.",
			machine("office", drains(v1alpha1.WaitingForOperatorsReason, "db/cb-0: ReschedulePolicy couchbase: its operator has the request to move it")),
			[]string{"db/cb-0: ReschedulePolicy couchbase: its operator has the request to move it", "docs/operators.md"},
			"docs/load-balancers.md",
		},
		"StopsPods": {
			"It is a step like the others.",
			machine("office", drains(v1alpha1.StoppingPodsReason, "2 pods are being stopped")),
			[]string{"2 pods are being stopped", "docs/load-balancers.md"},
			"docs/operators.md",
		},
		"Extension": {
			"It is a step like the others.",
			machine("office", drains(v1alpha1.WaitingForExtensionReason, "extension backup has not finished")),
			[]string{"extension backup has not finished", "docs/extensions.md"},
			"docs/operators.md",
		},
		"ForeignFinalizer": {
			"The deletion is completed, and the Machine stays.",
			machine("office", drains(clusterv1.MachineDeletingDeletionCompletedReason, "Deletion completed: but Machine office-machine is held by the finalizers of others: example.com/backup")),
			[]string{"example.com/backup", "Do:        to have it at once: kubectl 5spot -n farm give-back office\n           wait for the owner of the finalizer"},
			"",
		},
		"DeletionCompleted": {
			"No finalizer of others holds the Machine: there is no owner to wait for.",
			machine("office", drains(clusterv1.MachineDeletingDeletionCompletedReason, "Deletion completed")),
			[]string{"Leaving"},
			"finalizer",
		},
		"ClusterMissing": {
			"A missing Cluster is also reported during a deletion.",
			machine("office", going, status(condition(v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, v1alpha1.ReferencesInvalidReason, "Cluster prod does not exist"))),
			[]string{"Deleting: ", "Note:      Cluster prod does not exist\n"},
			"",
		},
		"NotServed": {
			"A label is missing, and no network is broken.",
			machine("office", status(condition(v1alpha1.WorkloadClusterReachableCondition, metav1.ConditionFalse, v1alpha1.WatchFilterMismatchReason, "label the Cluster"))),
			[]string{"does not notice when its owner starts a program", "           label the Cluster\n"},
			"cannot be reached",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run("", "why", "office", cluster(t, map[string]any{path("office"): tc.m})).Out
			for _, want := range tc.notes {
				if !strings.Contains(got, want) {
					t.Errorf("%s\n%q is not in:\n%s", tc.reason, want, got)
				}
			}
			if tc.missing != "" && strings.Contains(got, tc.missing) {
				t.Errorf("%s\n%q is in:\n%s", tc.reason, tc.missing, got)
			}
		})
	}
}

// TestWhyReadsTheReclaimedMachine explains a machine whose ScheduledMachine is deleted.
func TestWhyReadsTheReclaimedMachine(t *testing.T) {
	t.Parallel()
	left := &v1alpha1.ReclaimedMachine{Spec: v1alpha1.ReclaimedMachineSpec{ClusterName: "prod", Node: "worker-7", NodeUID: "u1", Reason: "process-match: java"}}
	left.Namespace, left.Name = "prod", "office"
	got := run("", "why", "office", cluster(t, map[string]any{strings.Replace(path("office"), "scheduledmachines", "reclaimedmachines", 1): left}))
	for _, want := range []string{"Returned: its ScheduledMachine was deleted", "Because:   its owner started a program that matches java", " resume office"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
	if got := run("", "why", "nobody", cluster(t, map[string]any{})); got.Code == 0 || !strings.Contains(got.Err, "not found") {
		t.Errorf("what nobody remembers is not found: %+v", got)
	}
}
