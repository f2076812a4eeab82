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

// gate admits a departure or defers it. A departure whose deletion is refused is admitted again on
// every reconcile. Emergencies, kill switches and the end of the Cluster are exempt. A Machine that
// another client deletes waits at our hook: package machinehook requests its admission.
func (r *Reconciler) gate(s *scope, d lifecycle.Decision, now time.Time) lifecycle.Decision {
	key := client.ObjectKeyFromObject(s.scheduled)
	r.Roster.Tell(key, s.entry(d, now), now)
	if s.frozen {
		return d // Where nothing is carried out, the whole decision is told.
	}
	if s.held(now) {
		s.verdict = r.Roster.Look(key, s.children.Machine.UID)
		return d
	}
	if s.starting = s.starts(d); !s.starting {
		return d
	}
	s.verdict = r.Roster.Begin(key, s.children.Machine.UID, now)
	if s.verdict.Granted {
		return d
	}
	return lifecycle.Kept(s.facts(now), d)
}

// starts reports whether a decision starts a departure that the planner has to admit.
func (s *scope) starts(d lifecycle.Decision) bool {
	return d.Action == lifecycle.Depart && s.children.Machine != nil && !s.exempt() && v1alpha1.DepartureReason(d.Cause).Lane() != v1alpha1.ExemptLane
}

// held reports whether our hook holds a Machine that somebody else deletes, and that has to
// wait.
func (s *scope) held(now time.Time) bool {
	return s.children.Machine != nil && !s.paused && !s.exempt() && children.Held(s.children.Machine, now)
}

// exempt reports whether the machine does not wait for the planner, whatever takes it away: a
// person or its owner wants it at once, or its Cluster goes.
func (s *scope) exempt() bool { return s.scheduled.Spec.KillSwitch || s.urgent() }

// urgent reports whether the machine waits for nobody at all. A Cluster that is missing may have
// been lost.
func (s *scope) urgent() bool {
	return s.scheduled.BeingReclaimed() || s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero()
}

// unplanned reports whether the planner has yet to look at the departure.
func (s *scope) unplanned() bool { return s.kept() && s.verdict.Reason == "" }

// kept reports whether the machine is to leave and may not yet.
func (s *scope) kept() bool { return s.starting && !s.verdict.Granted }

// entry is what the departure planner is told of the machine.
func (s *scope) entry(d lifecycle.Decision, now time.Time) roster.Entry {
	e := roster.Entry{Cluster: workload.ClusterKey(s.scheduled), Scheduled: s.scheduled.UID}
	m := s.children.Machine
	if m == nil {
		return e
	}
	if s.held(now) {
		return roster.Held(s.scheduled, m, now)
	}
	e.Machine, e.Priority, e.Generation = m.UID, s.scheduled.PriorityOrDefault(), s.scheduled.Generation
	e.NeverRan = !m.Status.NodeRef.IsDefined() && s.scheduled.Status.NodeRef == nil
	active, change := s.answer(now)
	left := children.LeavingSince(m, s.scheduled, now)
	switch {
	case !left.IsZero():
		e.Left = left
	case s.paused, s.frozen:
	case d.Action == lifecycle.Remove, d.Action == lifecycle.Depart && !s.starts(d):
		e.Left = now
	case s.starts(d):
		e.From, e.Lane = now, departure.Unscheduled
		if end, announced := s.onTime(d, now); announced {
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

// lane is that of a departure: what the planner says, and where it was not asked, because nobody
// has to wait or nothing is carried out, what it would be told. Empty is that of the reason.
func (s *scope) lane(d lifecycle.Decision, now time.Time) v1alpha1.DepartureLane {
	_, onTime := s.onTime(d, now)
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

// onTime returns the end of the window that a departure follows from, and whether that is the one
// that was announced.
func (s *scope) onTime(d lifecycle.Decision, now time.Time) (end time.Time, ok bool) {
	if d.Cause != lifecycle.WindowClosed {
		return time.Time{}, false
	}
	return s.announced(now)
}

// announced returns the end of the window that is over, and whether status announced it in
// time.
func (s *scope) announced(now time.Time) (end time.Time, ok bool) {
	st := &s.scheduled.Status
	if st.NextCleanup == nil || st.NextCleanup.After(now) || !s.inTime(st.NextCleanup.Time) {
		return time.Time{}, false
	}
	return st.NextCleanup.Time, true
}

// inTime reports whether status has announced this end long enough, for this very spec.
func (s *scope) inTime(end time.Time) bool {
	st := &s.scheduled.Status
	if st.NextCleanup == nil || st.NextCleanupSince == nil {
		return false
	}
	a := rails.Announcement{End: st.NextCleanup.Time, Since: st.NextCleanupSince.Time, Generation: st.ObservedGeneration}
	return a.Covers(end, s.scheduled.Generation)
}

// reportCleanup writes when the window closes, and since when that is known. What is over
// stays while the machine is kept, or refused to go: after a restart it must still be known
// that it was announced.
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

// reportGate says what keeps a machine that is to leave.
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
