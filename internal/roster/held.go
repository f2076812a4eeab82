// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Held is what is told of a Machine that somebody else deletes and that our hook holds: it
// is to leave since it was deleted, or from now on if that was by a clock ahead of ours.
func Held(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine, now time.Time) Entry {
	return Entry{
		Cluster: workload.ClusterKey(sm), Scheduled: sm.UID, Machine: m.UID, Priority: sm.PriorityOrDefault(), Generation: sm.Generation, NeverRan: !m.Status.NodeRef.IsDefined(),
		From: departure.Sooner(now, m.DeletionTimestamp.Time), Lane: departure.Unscheduled,
	}
}

// orphans begins the name of a Machine whose ScheduledMachine is gone: no object is named so.
const orphans = "machines/"

// Orphan is the name of a Machine that leaves without a ScheduledMachine, or with one of that name
// that it was not made for.
func Orphan(machine types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: machine.Namespace, Name: orphans + machine.Name}
}

// OrphanOf returns the Machine of a name that Orphan made, and whether it did.
func OrphanOf(name types.NamespacedName) (machine types.NamespacedName, ok bool) {
	name.Name, ok = strings.CutPrefix(name.Name, orphans)
	return name, ok
}

// IsOrphan reports whether a candidate is such a Machine.
func IsOrphan(candidate string) bool {
	_, ok := OrphanOf(Named(candidate))
	return ok
}

// Orphaned is what is told of such a Machine that is being deleted. What started to leave is on
// record on the Machine, and so is since when it is to: a restart loses nothing. killed says that
// the kill switch is on of the ScheduledMachine that has the name now.
func Orphaned(m *clusterv1.Machine, killed bool, now time.Time) Entry {
	e := Entry{Cluster: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, Machine: m.UID, NeverRan: !m.Status.NodeRef.IsDefined()}
	switch e.Left = children.LeavingSince(m, nil, now); {
	case !e.Left.IsZero():
	case killed:
		e.Left = now
	default:
		e.From, e.Lane = departure.Sooner(now, m.DeletionTimestamp.Time), departure.Unscheduled
	}
	return e
}
