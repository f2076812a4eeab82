// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Held is what is told of a Machine that somebody else deletes and that our hook holds: it
// is to leave since it was deleted, or from now on if that was by a clock ahead of ours.
func Held(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine, now time.Time) Entry {
	if sm.Spec.KillSwitch {
		return Killed(sm, m)
	}
	return Entry{
		Cluster: workload.ClusterKey(sm), Scheduled: sm.UID, Machine: m.UID, Priority: sm.PriorityOrDefault(), Generation: sm.Generation,
		From: departure.Sooner(now, m.DeletionTimestamp.Time), Lane: departure.Unscheduled,
	}
}

// Killed is what is told of a Machine whose kill switch is on, whoever deletes it: it is no
// candidate of the planner.
func Killed(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine) Entry {
	return Entry{
		Cluster: workload.ClusterKey(sm), Scheduled: sm.UID, Machine: m.UID, Priority: sm.PriorityOrDefault(), Generation: sm.Generation,
		Killed: true,
	}
}
