// SPDX-License-Identifier: Apache-2.0

package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// slack is by how much two records of the same instant may differ: what a write takes,
// and clocks.
const slack = 5 * time.Second

// CreatedAt returns when a Machine was made, wherever clusterctl move has brought it
// since.
func CreatedAt(m *clusterv1.Machine) time.Time {
	at := earlier(m.CreationTimestamp.Time, m.Annotations[v1alpha1.CreatedAnnotation])
	if m.CreationTimestamp.Sub(at) <= slack {
		return m.CreationTimestamp.Time
	}
	return at
}

// LeavingSince returns when the deletion of a Machine began, also if clusterctl move
// has interrupted it since; zero if nobody deletes it.
func LeavingSince(m *clusterv1.Machine) time.Time {
	var at time.Time
	if m.DeletionTimestamp != nil {
		at = m.DeletionTimestamp.Time
	}
	return earlier(at, m.Annotations[v1alpha1.LeavingAnnotation])
}

// earlier is the earlier one of two instants. One that is zero, or cannot be read,
// does not count.
func earlier(at time.Time, written string) time.Time {
	if w, err := time.Parse(time.RFC3339, written); err == nil && (at.IsZero() || w.Before(at)) {
		return w
	}
	return at
}

// settling is how long a Machine that was moved is given once Cluster API has looked for
// its Node, and not seen the workload cluster.
const settling = time.Minute

// Settling reports whether clusterctl move brought a Machine whose Node Cluster API
// has not found again: deleted now, it would leave its Node behind. by is when that
// ends at the latest; zero is when Cluster API has looked, without which it deletes
// nothing either.
func Settling(m *clusterv1.Machine, now time.Time) (settles bool, by time.Time) {
	if !CreatedAt(m).Before(m.CreationTimestamp.Time) || m.Spec.ProviderID == "" || m.Status.NodeRef.IsDefined() {
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

// Interrupted reports whether clusterctl move brought a Machine in the middle of its
// departure: its Node may be cordoned, and nobody deletes it any more.
func Interrupted(m *clusterv1.Machine) bool {
	_, left := m.Annotations[v1alpha1.LeavingAnnotation]
	return left && m.DeletionTimestamp.IsZero()
}
