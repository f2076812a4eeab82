// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// request writes the request for a departure to the Machine, unless it has the same one. The planner answers on the
// Machine, which enqueues this object.
func (r *Reconciler) request(ctx context.Context, s *scope, d lifecycle.Decision) error {
	now := r.Clock.Now()
	want := v1alpha1.Departure{
		Reason: v1alpha1.DepartureReason(d.Cause), Lane: v1alpha1.UnscheduledLane, RequestedAt: v1alpha1.DepartureTime(now),
		Grace: children.FormatGrace(children.GraceOf(s.scheduled)), ActionID: string(uuid.NewUUID()),
	}
	if end, announced := s.announcedWindowEnd(d, now); announced {
		want.Lane, want.RequestedAt, want.End = v1alpha1.ScheduledLane, v1alpha1.DepartureTime(end), v1alpha1.DepartureTime(end)
	}
	return kinds.IgnoreNoObject(r.Actuate.EditLocked(ctx, s.children.Machine, func(m *clusterv1.Machine) { children.Request(m, want, now) }))
}

// awaitPlanner defers the report until the planner answers on the Machine, for at most one Window. In most cases the
// planner answers at once. The report is not deferred longer, because the planner's writes may fail.
func (r *Reconciler) awaitPlanner(s *scope) {
	now := r.Clock.Now()
	due := r.progress.Until(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.scheduled)}, departurecap.Window, now)
	if now.Before(due) {
		s.pending, s.reportAt = workWaits, due
	}
}

// exempt reports whether the machine leaves without the planner's admission: by a kill switch, a reclaim, or the
// deletion of its Cluster. A missing Cluster does not count: it may have been lost.
func (s *scope) exempt() bool { return children.Exempt(s.scheduled, s.cluster) }

// waiting returns why the planner has not admitted the departure, or could not delete the Machine. It is nil if the
// departure is not requested, or if the planner has not answered.
func (s *scope) waiting(now time.Time) *v1alpha1.DepartureWaiting {
	if s.children.Machine == nil || s.paused || s.suppressed || s.exempt() {
		return nil
	}
	state, d := children.StateOf(s.children.Machine, now)
	if state == children.Requested || state == children.Admitted && d.Waiting != nil {
		return d.Waiting
	}
	return nil
}

// lane returns the lane of a departure that starts now. Empty means the lane of the departure reason.
func (s *scope) lane(d lifecycle.Decision, now time.Time) v1alpha1.DepartureLane {
	_, onTime := s.announcedWindowEnd(d, now)
	switch {
	case s.exempt() && !s.scheduled.Spec.KillSwitch:
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
	return children.AnnouncedEnd(s.scheduled, now)
}
