// SPDX-License-Identifier: Apache-2.0

package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// AdmissionLasts is how long an admission is valid. If the Machine is not deleted by then, the departure waits for
// another admission. The write of the admission may take MaxRun, and the deletion has one Window.
const AdmissionLasts = departurecap.MaxRun + departurecap.Window

// A DepartureState is the state of the departure record on a Machine: see ADR 0037.
type DepartureState string

const (
	// NoDeparture means that the Machine has no record, or one that no controller writes.
	NoDeparture DepartureState = ""
	// OtherMachine means that the record is of another Machine. clusterctl move, a restore or a person can leave one:
	// see Interrupted.
	OtherMachine DepartureState = "OtherMachine"
	// Requested means that the departure needs an admission. An admission in the future counts as a request.
	Requested DepartureState = "Requested"
	// Admitted means that the Machine may be deleted, and is not yet.
	Admitted DepartureState = "Admitted"
	// Expired means that the Machine was not deleted within AdmissionLasts.
	Expired DepartureState = "Expired"
	// Started means that the departure is admitted and the Machine is being deleted.
	Started DepartureState = "Started"
)

// StateOf returns the state of the departure record of a Machine, and the record. It clears times of a request that are
// in the future: the planner would count them as starts until then. A clock that was set back by less than rails.MaxSkew
// does not undo a departure that has started.
func StateOf(m *clusterv1.Machine, now time.Time) (DepartureState, v1alpha1.Departure) {
	d, ok := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	switch latest := now.Add(slack); {
	case !ok:
		return NoDeparture, d
	case d.MachineUID != m.UID:
		return OtherMachine, d
	case !m.DeletionTimestamp.IsZero() && !d.Since.IsZero() && !d.Since.After(now.Add(rails.MaxSkew)):
		return Started, d
	case d.Since.IsZero(), d.Since.After(latest):
		d.Since = metav1.Time{}
		if d.ExpiredAt.After(latest) {
			d.ExpiredAt = metav1.Time{}
		}
		return Requested, d
	case now.Before(d.Since.Add(AdmissionLasts)):
		return Admitted, d
	default:
		return Expired, d
	}
}

// DepartureOf returns the record of a departure that was admitted. ok is false in every other state.
func DepartureOf(m *clusterv1.Machine, now time.Time) (d v1alpha1.Departure, ok bool) {
	switch state, d := StateOf(m, now); state {
	case Admitted, Expired, Started:
		return d, true
	default:
		return v1alpha1.Departure{}, false
	}
}

// Request writes a request to m, with the reason, lane, end and grace of d. A request that m has keeps its id, and its
// time if the lane is the same. An admission stays. If d has no reason, it gets the one of the record on m: see
// unconfirmed.
func Request(m *clusterv1.Machine, d v1alpha1.Departure, now time.Time) {
	state, was := StateOf(m, now)
	switch state {
	case Admitted, Expired, Started:
		return
	case Requested:
		d.ExpiredAt, d.ActionID, d.Skips = was.ExpiredAt, was.ActionID, was.Skips
		if was.Lane == d.Lane {
			d.RequestedAt, d.Waiting = was.RequestedAt, was.Waiting
		}
	default:
	}
	if d.Interrupted = Interrupted(m); d.Reason == "" {
		d.Reason = unconfirmed(was)
	}
	SetDeparture(m, d)
}

// Record writes the record of a departure that starts now to m. An admission that is valid stays, and so does the record
// of a started departure, unless d is urgent and the record is not. A departure that was tried before for the same
// reason, also on another Machine, keeps its id. If d has no reason, it gets the one of a record of another Machine: see
// unconfirmed.
func Record(m *clusterv1.Machine, d v1alpha1.Departure) {
	state, was := StateOf(m, d.Since.Time)
	if state == Started && (was.Urgent() || !d.Urgent()) || state == Admitted && !was.Urgent() && !d.Urgent() {
		return
	}
	if d.Reason == "" && (state == Requested || state == OtherMachine) {
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

// SetDeparture writes d to m as a record of this Machine.
func SetDeparture(m *clusterv1.Machine, d v1alpha1.Departure) {
	d.MachineUID = m.UID
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.DepartureAnnotation, d.String())
}

// ForOwner reports whether m is being deleted because its owner requested it.
func ForOwner(m *clusterv1.Machine, now time.Time) bool {
	state, d := StateOf(m, now)
	return state == Started && d.Reason == v1alpha1.ReclaimedByOwner
}

// LeavingSince returns when a Machine started to leave, by the manager's clock, which measures its budget. It is zero if
// the Machine does not leave. It is also zero while our hook holds a Machine that another client deletes: the
// departure is recorded before the hook is removed.
//
// Without a hook and a record, the deletion timestamp counts. A Machine whose delete call failed has not
// started to leave, unless the departure is urgent and sm still requires it. sm may be nil.
func LeavingSince(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) time.Time {
	if d, ok := DepartureOf(m, now); ok && (!m.DeletionTimestamp.IsZero() || d.Urgent() && urgent(sm)) {
		return d.Since.Time
	}
	if m.DeletionTimestamp == nil || metav1.HasAnnotation(m.ObjectMeta, v1alpha1.PreDrainHookAnnotation) {
		return time.Time{}
	}
	return m.DeletionTimestamp.Time
}

// Held reports whether our hook holds a Machine that another client deletes. Its departure is not admitted; it may have
// a request.
func Held(m *clusterv1.Machine, now time.Time) bool {
	state, _ := StateOf(m, now)
	return AtHook(m) && state != Started
}

// AtHook reports whether our pre-drain hook holds a Machine that is being deleted. A paused Machine does not
// count.
func AtHook(m *clusterv1.Machine) bool {
	return metav1.HasAnnotation(m.ObjectMeta, v1alpha1.PreDrainHookAnnotation) && !m.DeletionTimestamp.IsZero() && !annotations.HasPaused(m)
}

// Interrupted reports whether a Machine that is not being deleted has the departure record of another Machine, or one
// that began as such. clusterctl move or a restore brought it during its departure, and its Node may be cordoned. The
// departure continues as a new one, which the planner admits. A departure that was only requested has not started: the
// schedule decides again.
func Interrupted(m *clusterv1.Machine) bool {
	d, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	return m.DeletionTimestamp.IsZero() && (d.MachineUID != m.UID && !d.Since.IsZero() || d.Interrupted)
}

// CanWithdraw reports whether a Machine that is not being deleted has a departure record that Withdraw may remove. An
// interrupted departure of another Machine continues.
func CanWithdraw(m *clusterv1.Machine) bool {
	text, recorded := m.Annotations[v1alpha1.DepartureAnnotation]
	d, _ := v1alpha1.ParseDeparture(text)
	return recorded && m.DeletionTimestamp.IsZero() && (d.MachineUID == m.UID || !Interrupted(m))
}

// UrgencyWithdrawn reports whether a Machine that is not being deleted has an urgent departure record, and neither the
// kill switch nor the owner's request is set any more.
func UrgencyWithdrawn(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) bool {
	d, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	return d.Urgent() && CanWithdraw(m) && !urgent(sm)
}

// ClusterLeaves reports whether a Cluster is being deleted. A missing Cluster does not count: it may have been lost.
func ClusterLeaves(cluster *clusterv1.Cluster) bool {
	return cluster != nil && !cluster.DeletionTimestamp.IsZero()
}

// Exempt reports whether the machine of sm leaves without an admission: by the kill switch, its owner's request, or the
// deletion of its Cluster. sm and cluster may be nil.
func Exempt(sm *v1alpha1.ScheduledMachine, cluster *clusterv1.Cluster) bool {
	return urgent(sm) || ClusterLeaves(cluster)
}

// urgent reports whether the kill switch or the owner's request is set.
func urgent(sm *v1alpha1.ScheduledMachine) bool {
	return sm != nil && (sm.Spec.KillSwitch || sm.BeingReclaimed())
}
