// SPDX-License-Identifier: Apache-2.0

package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// slack is the maximum difference between two records of one instant. Writes take time, and clocks differ.
const slack = 5 * time.Second

// CreatedAt returns when a Machine was created, also after clusterctl move, which creates the object anew. An owner's
// request that is older than the Machine is stale and removed. With the time of the moved object, a valid request would
// look stale. Differences up to slack are ignored.
func CreatedAt(m *clusterv1.Machine) time.Time {
	at := earlier(m.CreationTimestamp.Time, m.Annotations[v1alpha1.CreatedAnnotation])
	if m.CreationTimestamp.Sub(at) <= slack {
		return m.CreationTimestamp.Time
	}
	return at
}

// DepartureOf returns the departure record of this Machine if the departure is admitted. ok is false without a record,
// for a request, and for an admission in the future. The record of another Machine does not count. clusterctl move, a
// restore or a person can leave one: see Interrupted.
func DepartureOf(m *clusterv1.Machine, now time.Time) (d v1alpha1.Departure, ok bool) {
	d, ok = v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	if !ok || d.MachineUID != m.UID || d.Since.IsZero() || d.Since.After(now.Add(slack)) {
		return v1alpha1.Departure{}, false
	}
	return d, true
}

// AdmissionLasts is how long an admission is valid. If the Machine is not deleted by then, the departure waits for
// another admission.
const AdmissionLasts = departure.Window

// Admitted reports whether a Machine that is not being deleted has an admission that has not expired.
func Admitted(m *clusterv1.Machine, now time.Time) bool {
	d, ok := DepartureOf(m, now)
	return ok && m.DeletionTimestamp.IsZero() && now.Before(d.Since.Add(AdmissionLasts))
}

// RequestOf returns the record of a requested departure of this Machine. ok is false without a record and for an
// admitted departure. An admission in the future counts as a request. An expiry in the future does not count.
func RequestOf(m *clusterv1.Machine, now time.Time) (d v1alpha1.Departure, ok bool) {
	d, ok = v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	if _, admitted := DepartureOf(m, now); !ok || admitted || d.MachineUID != m.UID {
		return v1alpha1.Departure{}, false
	}
	d.Since = metav1.Time{}
	if d.ExpiredAt.After(now.Add(slack)) {
		d.ExpiredAt = metav1.Time{} // It would count as a start until then.
	}
	return d, true
}

// Request writes a request to m, with the reason, lane, end and grace of d. A request that m has keeps its id, and its
// time if the lane is the same. An admission stays. If d has no reason, it gets the one of the record on m: see
// unconfirmed.
func Request(m *clusterv1.Machine, d v1alpha1.Departure, now time.Time) {
	was, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	if _, admitted := DepartureOf(m, now); admitted {
		return
	}
	own, again := RequestOf(m, now)
	if d.Interrupted = Interrupted(m); d.Reason == "" {
		d.Reason = unconfirmed(was)
	}
	if again {
		d.ExpiredAt, d.ActionID, d.Skips = own.ExpiredAt, own.ActionID, own.Skips
		if own.Lane == d.Lane {
			d.RequestedAt, d.Waiting = own.RequestedAt, own.Waiting
		}
	}
	SetDeparture(m, d)
}

// SetDeparture writes d to m as a record of this Machine.
func SetDeparture(m *clusterv1.Machine, d v1alpha1.Departure) {
	d.MachineUID = m.UID
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.DepartureAnnotation, d.String())
}

// NeverRan reports whether a Machine never had a Node, by its status and by the status of sm, of which one can be lost.
// sm may be nil.
func NeverRan(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) bool {
	return !m.Status.NodeRef.IsDefined() && (sm == nil || sm.Status.NodeRef == nil)
}

// AnnouncedEnd returns the end of a window that is over, if the status of sm announced it in time. ok is false for every
// other end.
func AnnouncedEnd(sm *v1alpha1.ScheduledMachine, now time.Time) (end time.Time, ok bool) {
	st := &sm.Status
	if st.NextCleanup == nil || st.NextCleanupSince == nil || st.NextCleanup.After(now) {
		return time.Time{}, false
	}
	a := rails.Announcement{End: st.NextCleanup.Time, Since: st.NextCleanupSince.Time, Generation: st.ObservedGeneration}
	return st.NextCleanup.Time, a.Covers(st.NextCleanup.Time, sm.Generation)
}

// ForOwner reports whether m is being deleted because its owner requested it.
func ForOwner(m *clusterv1.Machine, now time.Time) bool {
	d, ok := DepartureOf(m, now)
	return ok && d.Reason == v1alpha1.ReclaimedByOwner && !m.DeletionTimestamp.IsZero()
}

// LeavingSince returns when a Machine started to leave, by the clock that measures its budget. It is zero if
// the Machine does not leave. It is also zero while our hook holds a Machine that another client deletes: the
// departure is recorded before the hook is removed.
//
// Without a hook and a record, the deletion timestamp counts. A Machine whose delete call failed has not
// started to leave, unless the departure is urgent and sm still requires it. sm may be nil.
func LeavingSince(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) time.Time {
	if d, ok := DepartureOf(m, now); ok && (!Abandoned(m) || d.Urgent() && urgent(sm)) {
		return d.Since.Time
	}
	if _, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]; held || m.DeletionTimestamp == nil {
		return time.Time{}
	}
	return m.DeletionTimestamp.Time
}

// Held reports whether our hook holds a Machine that another client deletes. Its departure is not admitted; it may have
// a request.
func Held(m *clusterv1.Machine, now time.Time) bool {
	_, recorded := DepartureOf(m, now)
	return AtHook(m) && !recorded
}

// AtHook reports whether our pre-drain hook holds a Machine that is being deleted. A paused Machine does not
// count.
func AtHook(m *clusterv1.Machine) bool {
	_, hook := m.Annotations[v1alpha1.PreDrainHookAnnotation]
	return hook && !m.DeletionTimestamp.IsZero() && !annotations.HasPaused(m)
}

// earlier returns the earlier of two instants. It ignores one that is zero or cannot be parsed.
func earlier(at time.Time, written string) time.Time {
	if w, err := time.Parse(time.RFC3339, written); err == nil && (at.IsZero() || w.Before(at)) {
		return w
	}
	return at
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

// Interrupted reports whether a Machine that is not being deleted has the departure record of another Machine, or one
// that began as such. clusterctl move or a restore brought it during its departure, and its Node may be cordoned. The
// departure continues as a new one, which the planner admits. A departure that was only requested has not started: the
// schedule decides again.
func Interrupted(m *clusterv1.Machine) bool {
	d, on := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	return on && m.DeletionTimestamp.IsZero() && (d.MachineUID != m.UID && !d.Since.IsZero() || d.Interrupted)
}

// Abandoned reports whether a Machine has a departure record but was never deleted, and its departure is not
// interrupted: it is only requested, or the delete call failed or was not sent.
func Abandoned(m *clusterv1.Machine) bool {
	text, on := m.Annotations[v1alpha1.DepartureAnnotation]
	d, readable := v1alpha1.ParseDeparture(text)
	return on && m.DeletionTimestamp.IsZero() && (!readable || d.MachineUID == m.UID || !Interrupted(m))
}

// UrgencyWithdrawn reports whether a Machine has an urgent departure record but was never deleted, and neither the kill
// switch nor the owner's request is set any more.
func UrgencyWithdrawn(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) bool {
	d, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	return d.Urgent() && Abandoned(m) && !urgent(sm)
}

// Exempt reports whether the machine of sm leaves without an admission: by the kill switch, its owner's request, or the
// deletion of its Cluster. sm and cluster may be nil. A missing Cluster does not count: it may have been lost.
func Exempt(sm *v1alpha1.ScheduledMachine, cluster *clusterv1.Cluster) bool {
	return urgent(sm) || cluster != nil && !cluster.DeletionTimestamp.IsZero()
}

// urgent reports whether the kill switch or the owner's request is set.
func urgent(sm *v1alpha1.ScheduledMachine) bool {
	return sm != nil && (sm.Spec.KillSwitch || sm.BeingReclaimed())
}

// Record writes the record of a departure that starts now to m. An admission that is valid stays, and so does the record
// of a started departure, unless d is urgent and the record is not. A departure that was tried before for the same
// reason, also on another Machine, keeps its id. If d has no reason, it gets the one of a record of another Machine: see
// unconfirmed.
func Record(m *clusterv1.Machine, d v1alpha1.Departure) {
	was, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	_, own := DepartureOf(m, d.Since.Time)
	begun := own && !m.DeletionTimestamp.IsZero() || Admitted(m, d.Since.Time) && !was.Urgent()
	if begun && (was.Urgent() || !d.Urgent()) {
		return
	}
	if d.Reason == "" && !own {
		d.Reason = unconfirmed(was)
	}
	if d.Reason == "" {
		return
	}
	if was.Reason == d.Reason {
		d.ActionID = was.ActionID
	}
	d.Skips = append(was.Skips, d.Skips...)
	SetDeparture(m, d)
}

// unconfirmed returns the reason of a record of another Machine. An urgent reason becomes DeletedByOthers, because the
// urgency is not confirmed.
func unconfirmed(d v1alpha1.Departure) v1alpha1.DepartureReason {
	if d.Urgent() {
		return v1alpha1.DeletedByOthers
	}
	return d.Reason
}
