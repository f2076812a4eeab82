// SPDX-License-Identifier: Apache-2.0

package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
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

// DepartureOf returns the record of the departure of this very Machine. ok is false where there is none,
// and for a record of a time to come. The record of another Machine, as clusterctl move, a restore and
// people leave one, is a request: see Interrupted.
func DepartureOf(m *clusterv1.Machine, now time.Time) (d v1alpha1.Departure, ok bool) {
	d, ok = v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	if !ok || d.MachineUID != m.UID || d.Since.After(now.Add(slack)) {
		return v1alpha1.Departure{}, false
	}
	return d, true
}

// ForOwner reports whether m is being deleted because its owner requested it.
func ForOwner(m *clusterv1.Machine, now time.Time) bool {
	d, ok := DepartureOf(m, now)
	return ok && d.Reason == v1alpha1.ReclaimedByOwner && !m.DeletionTimestamp.IsZero()
}

// LeavingSince returns since when a Machine has been leaving, by the clock that its
// budget is measured by; zero if it does not leave, or while our deletion hook holds a
// Machine that somebody else deletes: it is on record before the hook goes. Without hook
// and record the API server's clock has to do. One whose deletion was refused has not
// started to leave, unless somebody wants it at once, as sm says; it may be nil.
func LeavingSince(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) time.Time {
	if d, ok := DepartureOf(m, now); ok && (!Abandoned(m) || d.Urgent() && urgent(sm)) {
		return d.Since.Time
	}
	if _, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]; held || m.DeletionTimestamp == nil {
		return time.Time{}
	}
	return m.DeletionTimestamp.Time
}

// Held reports whether our hook holds a Machine that somebody else deletes: nothing is on
// record, and its departure has not started.
func Held(m *clusterv1.Machine, now time.Time) bool {
	_, recorded := DepartureOf(m, now)
	return AtHook(m) && !recorded
}

// AtHook reports whether our hook holds a Machine that is being deleted, and 5-Spot has to act
// before its drain. A paused Machine is nobody's to move.
func AtHook(m *clusterv1.Machine) bool {
	_, hook := m.Annotations[v1alpha1.PreDrainHookAnnotation]
	return hook && !m.DeletionTimestamp.IsZero() && !annotations.HasPaused(m)
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

// Settling reports whether clusterctl move brought a Machine of sm whose Node Cluster API
// has not found again: deleted now, it would leave its Node behind. by is when that
// ends at the latest; zero is when Cluster API has looked, without which it deletes
// nothing either. A Machine that was moved is older than both objects here: one made by a
// manager whose clock is behind the API server's is not older than its ScheduledMachine.
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

// Interrupted reports whether a Machine that is not being deleted carries the departure record of another
// Machine: clusterctl move or a restore brought it in the middle of its departure, and its Node may be
// cordoned. The departure goes on, as a new one: the planner admits it.
func Interrupted(m *clusterv1.Machine) bool {
	d, on := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	return on && m.DeletionTimestamp.IsZero() && d.MachineUID != m.UID
}

// Abandoned reports whether a record says that a Machine leaves which nobody has ever
// deleted: the deletion was refused, or never sent.
func Abandoned(m *clusterv1.Machine) bool {
	text, on := m.Annotations[v1alpha1.DepartureAnnotation]
	d, readable := v1alpha1.ParseDeparture(text)
	return on && m.DeletionTimestamp.IsZero() && (!readable || d.MachineUID == m.UID)
}

// Outlived reports whether a record says that a person or the owner wants a Machine at once
// which nobody has ever deleted, and neither does any more.
func Outlived(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) bool {
	d, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	return d.Urgent() && Abandoned(m) && !urgent(sm)
}

// urgent reports whether a person or the owner wants the machine at once.
func urgent(sm *v1alpha1.ScheduledMachine) bool {
	return sm != nil && (sm.Spec.KillSwitch || sm.BeingReclaimed())
}

// Record changes m to say why it leaves. The record of a departure that has begun stands, unless a person
// or the owner now wants the machine at once. A departure that was tried before, or on another Machine,
// and for the same reason, keeps its id. Without a reason a departure of another Machine keeps its own,
// unless that is urgent: nothing shows that it still is.
func Record(m *clusterv1.Machine, d v1alpha1.Departure) {
	was, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	_, own := DepartureOf(m, d.Since.Time)
	if begun := own && !m.DeletionTimestamp.IsZero(); begun && (was.Urgent() || !d.Urgent()) {
		return
	}
	if d.Reason == "" && !own {
		if d.Reason = was.Reason; was.Urgent() {
			d.Reason = v1alpha1.DeletedByOthers
		}
	}
	if d.Reason == "" {
		return
	}
	if was.Reason == d.Reason {
		d.ActionID = was.ActionID
	}
	d.Skips = append(was.Skips, d.Skips...)
	d.MachineUID = m.UID
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.DepartureAnnotation, d.String())
}
