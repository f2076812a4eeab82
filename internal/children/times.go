// SPDX-License-Identifier: Apache-2.0

package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// slack is the maximum difference between two records of one instant. Writes take time, and clocks differ.
const slack = 5 * time.Second

// CreatedAt returns when a Machine was created, also after clusterctl move, which creates the object anew. An owner's
// request that is older than the Machine is stale and removed. With the time of the moved object, a valid request would
// look stale. Differences up to slack are ignored.
func CreatedAt(m *clusterv1.Machine) time.Time {
	at, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.CreatedAnnotation])
	if err != nil || m.CreationTimestamp.Sub(at) <= slack {
		return m.CreationTimestamp.Time
	}
	return at
}

// NeverRan reports whether a Machine never had a Node, by its status and by the status of sm, of which one can be lost.
// sm may be nil. The status of sm may still be about the previous Machine.
func NeverRan(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) bool {
	if m.Status.NodeRef.IsDefined() {
		return false
	}
	return sm == nil || sm.Status.NodeRef == nil || sm.Status.MachineRef == nil || sm.Status.MachineRef.UID != m.UID
}

// AnnouncedEnd returns the end of a window that is over, if the status of sm announced it in time. ok is false for every
// other end.
func AnnouncedEnd(sm *v1alpha1.ScheduledMachine, now time.Time) (end time.Time, ok bool) {
	st := &sm.Status
	if st.NextCleanup == nil || st.NextCleanupAnnouncedTime == nil || st.NextCleanup.After(now) {
		return time.Time{}, false
	}
	end = st.NextCleanup.Time
	return end, rails.Announced(end, st.NextCleanupAnnouncedTime.Time, st.ObservedGeneration, sm.Generation)
}

// settling is how long a moved Machine waits after Cluster API has tried to find its Node and could not reach
// the workload cluster.
const settling = time.Minute

// Settling reports whether clusterctl move brought a Machine of sm, and Cluster API has not found its Node yet.
// If it were deleted now, its Node would remain. by is when the wait ends. It is zero until Cluster API has
// tried to find the Node: before that it deletes nothing either.
//
// A moved Machine was created before both objects here. If the manager's clock is behind the API server's, a
// new Machine is not older than its ScheduledMachine.
func Settling(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) (settles bool, by time.Time) {
	at := CreatedAt(m)
	if !at.Before(m.CreationTimestamp.Time) || !at.Before(sm.CreationTimestamp.Time) || m.Spec.ProviderID == "" || m.Status.NodeRef.IsDefined() {
		return false, time.Time{}
	}
	ready := conditions.Get(m, clusterv1.MachineNodeReadyCondition)
	switch {
	case ready == nil:
		return true, time.Time{}
	case ready.Status == metav1.ConditionUnknown:
		by = ready.LastTransitionTime.Add(settling)
		return now.Before(by), by
	default:
		return false, time.Time{}
	}
}
