// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// gate admits a departure or defers it. A departure whose deletion failed requests its admission again on every
// reconcile. Reclaims, kill switches and the deletion of the Cluster are exempt. A Machine that another client deletes
// waits at 5-Spot's hook: package machinehook requests its admission.
func (r *Reconciler) gate(s *scope, d lifecycle.Decision, now time.Time) lifecycle.Decision {
	key := client.ObjectKeyFromObject(s.scheduled)
	r.Roster.Report(key, s.entry(d, now), now)
	if s.frozen {
		return d // Writes are suppressed: the report needs the full Decision.
	}
	if s.held(now) {
		s.verdict = r.Roster.CurrentVerdict(key, s.children.Machine.UID)
		return d
	}
	if s.starting = s.starts(d); !s.starting {
		return d
	}
	s.verdict = r.Roster.RequestGrant(key, s.children.Machine.UID, now)
	if s.verdict.Granted {
		return d
	}
	return lifecycle.Kept(s.facts(now), d)
}

// starts reports whether a Decision starts a departure that needs the planner's admission.
func (s *scope) starts(d lifecycle.Decision) bool {
	return d.Action == lifecycle.Depart && s.children.Machine != nil && !s.exempt() && v1alpha1.DepartureReason(d.Cause).Lane() != v1alpha1.ExemptLane
}

// held reports whether 5-Spot's hook holds a Machine that another client deleted, and that is not exempt.
func (s *scope) held(now time.Time) bool {
	return s.children.Machine != nil && !s.paused && !s.exempt() && children.Held(s.children.Machine, now)
}

// exempt reports whether the machine leaves without the planner's admission: by a kill switch, a reclaim, or the
// deletion of its Cluster.
func (s *scope) exempt() bool { return s.scheduled.Spec.KillSwitch || s.urgent() }

// urgent is like exempt, but ignores the kill switch. A missing Cluster is not urgent: it may have been lost.
func (s *scope) urgent() bool {
	return s.scheduled.BeingReclaimed() || s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero()
}

// unplanned reports whether the planner has not evaluated the departure yet.
func (s *scope) unplanned() bool { return s.kept() && s.verdict.Reason == "" }

// kept reports whether the departure is deferred.
func (s *scope) kept() bool { return s.starting && !s.verdict.Granted }

// entry returns the state of the machine that the departure planner uses.
func (s *scope) entry(d lifecycle.Decision, now time.Time) roster.Entry {
	e := roster.Entry{Cluster: workload.ClusterKey(s.scheduled), Scheduled: s.scheduled.UID}
	m := s.children.Machine
	if m == nil {
		return e
	}
	if s.held(now) {
		return roster.HeldEntry(s.scheduled, m, now)
	}
	e.Machine, e.Priority, e.Generation = m.UID, s.scheduled.PriorityOrDefault(), s.scheduled.Generation
	e.NeverRan = roster.NeverRan(m, s.scheduled)
	active, change := s.scheduleAt(now)
	left := children.LeavingSince(m, s.scheduled, now)
	switch {
	case !left.IsZero():
		e.Left = left
	case s.paused, s.frozen:
	case d.Action == lifecycle.Remove, d.Action == lifecycle.Depart && !s.starts(d):
		e.Left = now
	case s.starts(d):
		e.From, e.Lane = now, departure.Unscheduled
		if end, announced := s.announcedWindowEnd(d, now); announced {
			e.From, e.End, e.Lane = end, end, departure.Scheduled
		}
	case active && !change.IsZero() && s.scheduled.DeletionTimestamp.IsZero():
		e.From, e.Lane = change, departure.Unscheduled
		if s.inTime(change) {
			e.End, e.Lane = change, departure.Scheduled
		}
	}
	return e
}

// lane returns the lane of a departure: the planner's, or the one that would apply if the planner was not involved.
// Empty means the lane of the departure reason.
func (s *scope) lane(d lifecycle.Decision, now time.Time) v1alpha1.DepartureLane {
	_, onTime := s.announcedWindowEnd(d, now)
	switch {
	case s.verdict.Lane != "":
		return v1alpha1.DepartureLane(s.verdict.Lane)
	case s.urgent():
		return v1alpha1.ExemptLane
	case d.Cause == lifecycle.WindowClosed && !onTime:
		return v1alpha1.UnscheduledLane
	default:
		return ""
	}
}

// announcedWindowEnd returns the end of the window that caused a departure, and whether status announced this end.
func (s *scope) announcedWindowEnd(d lifecycle.Decision, now time.Time) (end time.Time, ok bool) {
	if d.Cause != lifecycle.WindowClosed {
		return time.Time{}, false
	}
	return s.announced(now)
}

// announced returns the end of the window that is over, and whether status announced it in time.
func (s *scope) announced(now time.Time) (end time.Time, ok bool) {
	st := &s.scheduled.Status
	if st.NextCleanup == nil || st.NextCleanup.After(now) || !s.inTime(st.NextCleanup.Time) {
		return time.Time{}, false
	}
	return st.NextCleanup.Time, true
}

// inTime reports whether status announced this end long enough before, for the current generation of the spec.
func (s *scope) inTime(end time.Time) bool {
	st := &s.scheduled.Status
	if st.NextCleanup == nil || st.NextCleanupSince == nil {
		return false
	}
	a := rails.Announcement{End: st.NextCleanup.Time, Since: st.NextCleanupSince.Time, Generation: st.ObservedGeneration}
	return a.Covers(end, s.scheduled.Generation)
}

// reportCleanup writes when the window closes, and since when the status has announced this. A past end stays in the
// status while the departure is deferred or its deletion fails. After a restart it still proves that the end was
// announced.
func (s *scope) reportCleanup(closes, now time.Time, refused bool) {
	st, before := &s.scheduled.Status, &s.before.Status
	if (s.kept() || s.starting && refused) && before.NextCleanup != nil && !before.NextCleanup.After(now) && before.ObservedGeneration == s.scheduled.Generation {
		return
	}
	st.NextCleanup = instant(closes)
	same := before.NextCleanup.Equal(st.NextCleanup) && before.ObservedGeneration == s.scheduled.Generation
	if !same || before.NextCleanupSince == nil {
		st.NextCleanupSince = nil
		if st.NextCleanup != nil {
			st.NextCleanupSince = instant(now)
		}
	}
}

// reportGate sets the condition DepartureGated: why a departure is deferred.
func (s *scope) reportGate(d lifecycle.Decision, actErr error, now time.Time, paused bool) {
	reason, message := string(s.verdict.Reason), s.verdict.Message
	if paused && s.heldByPause(d, actErr) {
		reason, message = v1alpha1.ActuationPausedReason, pausedMessage+"; otherwise the machine would leave now"
		if s.stalled != "" {
			message = askedMessage
		}
	}
	if reason == "" {
		conditions.Delete(s.scheduled, v1alpha1.DepartureGatedCondition)
		return
	}
	conditions.Set(s.scheduled, metav1.Condition{
		Type: v1alpha1.DepartureGatedCondition, Status: metav1.ConditionTrue, Reason: reason,
		Message: clip.Message(message), LastTransitionTime: metav1.NewTime(now),
	})
}
