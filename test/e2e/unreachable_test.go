// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestMachinesLeaveAClusterThatCannotBeReached has its own workload cluster, which it stops.
func TestMachinesLeaveAClusterThatCannotBeReached(t *testing.T) {
	t.Parallel()
	l := newNamespace(t, "dark")
	w, err := shared.NewWorkload(timeout(t, patience), plane.WorkloadOptions{
		Name: "dark", Namespace: "dark",
		ClusterOptions: plane.ClusterOptions{NodeMonitorGrace: 10 * time.Minute, AuditBodies: system.JudgedInWorkload},
	})
	l.must(err)
	start := func(name string, mutate func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
		sm := system.ScheduledMachine(w, "dark-"+name, infrav1.PlaneMachineSpec{})
		if mutate != nil {
			mutate(sm)
		}
		l.create(sm)
		l.waitPhase(sm, active, metav1.ConditionTrue)
		return sm
	}
	closes := start("closes", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "5s" })
	killed, stays := start("killed", nil), start("stays", nil)
	before := l.family(stays)
	l.must(w.APIServer.Kill())
	l.closeWindow(closes)
	l.killSwitch(killed, true)
	l.waitPhase(killed, terminated, metav1.ConditionTrue)
	l.wantNothing(killed)
	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.wantNothing(closes)
	l.waitCondition(stays, v1alpha1.WorkloadClusterReachableCondition, metav1.ConditionFalse, "NotConnected")
	if err := unchanged(timeout(t, patience), before.objects()...); err != nil {
		t.Errorf("what cannot be seen is unknown, never absent: %v", err)
	}
	l.must(w.APIServer.Start(timeout(t, patience)))
	l.waitCondition(stays, v1alpha1.WorkloadClusterReachableCondition, metav1.ConditionTrue, "Connected")
	l.waitPhase(stays, active, metav1.ConditionTrue)
}
