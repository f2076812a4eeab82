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

// HeldEntry returns the Entry of a Machine that another client deletes and that 5-Spot's hook holds. It is due since
// its deletion, or since now if the deletion timestamp is in the future.
func HeldEntry(sm *v1alpha1.ScheduledMachine, m *clusterv1.Machine, now time.Time) Entry {
	return Entry{
		Cluster: workload.ClusterKey(sm), Scheduled: sm.UID, Machine: m.UID, Priority: sm.PriorityOrDefault(), Generation: sm.Generation,
		NeverRan: NeverRan(m, sm), From: departure.Earliest(now, m.DeletionTimestamp.Time), Lane: departure.Unscheduled,
	}
}

// NeverRan reports whether a Machine never had a Node, by its status and by the status of sm, of which one can be lost.
// sm may be nil.
func NeverRan(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) bool {
	return !m.Status.NodeRef.IsDefined() && (sm == nil || sm.Status.NodeRef == nil)
}

// orphans is the prefix of the names of orphans in the Roster. No object has such a name.
const orphans = "machines/"

// OrphanName returns the Roster name of a Machine whose ScheduledMachine does not exist any more, or was replaced
// by another with the same name.
func OrphanName(machine types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: machine.Namespace, Name: orphans + machine.Name}
}

// ParseOrphanName returns the Machine of a name that OrphanName returned. ok is false for other names.
func ParseOrphanName(name types.NamespacedName) (machine types.NamespacedName, ok bool) {
	name.Name, ok = strings.CutPrefix(name.Name, orphans)
	return name, ok
}

// IsOrphan reports whether a candidate is an orphan.
func IsOrphan(candidate string) bool {
	_, ok := ParseOrphanName(ParseName(candidate))
	return ok
}

// OrphanEntry returns the Entry of an orphan that is being deleted. The departure record and the deletion
// timestamp of the Machine survive a restart. killed reports that the kill switch is on in the ScheduledMachine
// that now has the name. The Machine then leaves at once.
func OrphanEntry(m *clusterv1.Machine, killed bool, now time.Time) Entry {
	e := Entry{Cluster: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, Machine: m.UID, NeverRan: NeverRan(m, nil)}
	switch e.Left = children.LeavingSince(m, nil, now); {
	case !e.Left.IsZero():
	case killed:
		e.Left = now
	default:
		e.From, e.Lane = departure.Earliest(now, m.DeletionTimestamp.Time), departure.Unscheduled
	}
	return e
}
