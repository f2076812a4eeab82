// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
)

// report writes the status at most once, and records Events after the write. It derives the status from this reconcile
// only. It returns when to reconcile again if it deferred a report of progress, else zero.
func (r *Reconciler) report(ctx context.Context, s *scope, d lifecycle.Decision, actErr error) (again time.Time, err error) {
	if apierrors.IsConflict(actErr) {
		return time.Time{}, nil // The next reconcile reads the newer object.
	}
	now := r.Clock.Now()
	st := &s.scheduled.Status
	st.Phase = v1alpha1.Phase(d.Phase)
	if actErr != nil {
		st.Phase = v1alpha1.PhaseError
	}
	if s.suppressed {
		st.Phase = s.before.Status.Phase
	}
	st.ObservedGeneration = s.scheduled.Generation
	s.reportSchedule(d.Action, now, actErr != nil)
	s.reportHost(now)
	s.reportChildren()
	s.reportConditions(d, actErr, now)
	s.reportGate(d, actErr, now, r.Actuate.ActuationPaused())
	s.reportDeparture(d.Action, now)

	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.scheduled)}
	if s.mayDefer(now) {
		if due := r.progress.Until(req, progressInterval, now); now.Before(due) {
			s.scheduled.Status = s.before.Status
			return due, nil
		}
	}
	if err := r.actuator(s.scheduled).PatchStatus(ctx, s.scheduled, s.before); err != nil {
		return time.Time{}, err
	}
	r.progress.Over(req)
	r.announce(ctx, s.scheduled, s.before)
	if st.Phase == v1alpha1.PhaseTerminated && s.before.Status.Phase != v1alpha1.PhaseTerminated {
		r.reportKillSwitchSurge(ctx, s.cluster, s.scheduled, now)
	}
	r.announceHost(s.scheduled, s.before)
	return time.Time{}, actuate.IgnoreSuppressed(r.reportOnMachine(ctx, s.children.Machine, s.scheduled))
}

// reportOnMachine sets the condition Scheduled on the Machine, because the tree of clusterctl describe shows Machines
// but no kinds of other providers. It waits until the Machine is ready and has a Node: two writers of one status would
// conflict often while hundreds join. A conflict or a missing Machine is no error, because its event triggers another
// reconcile.
func (r *Reconciler) reportOnMachine(ctx context.Context, m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) error {
	if m == nil || !m.DeletionTimestamp.IsZero() || !conditions.IsTrue(m, clusterv1.ReadyCondition) || !m.Status.NodeRef.IsDefined() {
		return nil
	}
	shown := conditions.Get(sm, v1alpha1.ScheduledCondition)
	c := metav1.Condition{
		Type: v1alpha1.MachineScheduledCondition, Status: shown.Status, Reason: shown.Reason, Message: shown.Message,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	if last := conditions.Get(m, c.Type); last != nil {
		if conditions.HasSameState(last, &c) {
			return nil
		}
		if last.Status == c.Status {
			c.LastTransitionTime = last.LastTransitionTime
		}
	}
	if err := kinds.IgnoreNoObject(r.Actuate.ApplyCondition(ctx, m, children.MachineKind, c)); !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// reportSchedule writes whether the schedule is active, and its next changes. refused means that the action failed.
func (s *scope) reportSchedule(action lifecycle.Action, now time.Time, refused bool) {
	st := &s.scheduled.Status
	schedule := machineschedule.Resolve(s.scheduled, now)
	active, change := schedule.Active, schedule.Change
	var after time.Time
	if !change.IsZero() {
		_, after = schedule.Schedule.At(change)
	}
	st.InSchedule = active
	opens, closes := change, after
	if active {
		opens, closes = after, change
	}
	st.NextActivation = timeOrNil(opens)
	s.reportCleanup(action, closes, now, refused)
	st.NextTransition = s.nextTransition(active, change)
	st.Days, st.Hours = oneLine(schedule.Spec.DaysOfWeek), oneLine(schedule.Spec.HoursOfDay)
}

// nextTransition returns the next change of the schedule as text, or why there is none.
func (s *scope) nextTransition(active bool, change time.Time) string {
	sm := s.scheduled
	switch {
	case !sm.DeletionTimestamp.IsZero():
		return "none: being deleted"
	case sm.Spec.KillSwitch:
		return "none: kill switch"
	case sm.BeingReclaimed():
		return "none: being given back"
	case change.IsZero():
		return ""
	case active:
		return "closes " + change.Format(time.RFC3339)
	default:
		return "opens " + change.Format(time.RFC3339)
	}
}

// oneLine joins a list of the schedule, in the author's notation, cut to the width of a printer column.
func oneLine(items []string) string {
	const most = 64
	return clip.To(strings.Join(strings.Fields(strings.Join(items, ",")), ""), most)
}

// reportCleanup writes when the window closes, and since when the status has announced this. A past end stays in the
// status while the departure is requested, or a pause suppresses it. After a restart it still proves that the end was
// announced.
func (s *scope) reportCleanup(action lifecycle.Action, closes, now time.Time, refused bool) {
	st, before := &s.scheduled.Status, &s.before.Status
	if (action == lifecycle.RequestDeparture || action == lifecycle.Depart && refused) && before.NextCleanup != nil && !before.NextCleanup.After(now) && before.ObservedGeneration == s.scheduled.Generation {
		return
	}
	st.NextCleanup = timeOrNil(closes)
	same := before.NextCleanup.Equal(st.NextCleanup) && before.ObservedGeneration == s.scheduled.Generation
	if !same || before.NextCleanupAnnouncedTime == nil {
		st.NextCleanupAnnouncedTime = nil
		if st.NextCleanup != nil {
			st.NextCleanupAnnouncedTime = timeOrNil(now)
		}
	}
}

// reportGate sets the condition DepartureGated: why a departure is deferred.
func (s *scope) reportGate(d lifecycle.Decision, actErr error, now time.Time, paused bool) {
	reason, message := "", ""
	if w := s.waiting(now); w != nil && w.Reason != v1alpha1.DeletionFailed {
		reason, message = w.Reason, w.Message
	}
	if paused && s.heldByPause(d, actErr) {
		reason, message = v1alpha1.ActuationPausedReason, pausedMessage+"; otherwise the machine would leave now"
		if s.stalled != "" {
			message = pausedWithRequestMessage
		}
	}
	if reason == "" {
		conditions.Delete(s.scheduled, v1alpha1.DepartureGatedCondition)
		return
	}
	s.setCondition(metav1.Condition{
		Type: v1alpha1.DepartureGatedCondition, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, now)
}

// reportDeparture writes the departure record of the Machine. It omits a request that is about to be withdrawn.
func (s *scope) reportDeparture(action lifecycle.Action, now time.Time) {
	s.scheduled.Status.Departure = nil
	m := s.children.Machine
	if m == nil {
		return
	}
	state, d := children.StateOf(m, now)
	switch state {
	case children.Requested:
		if action != lifecycle.RequestDeparture {
			return
		}
	case children.Admitted, children.Expired, children.Started:
	default:
		return
	}
	st := &v1alpha1.DepartureStatus{Reason: d.Reason, Lane: d.Lane, RequestedTime: timeOrNil(d.RequestedAt.Time)}
	if state != children.Requested {
		st.AdmittedTime = timeOrNil(d.Since.Time)
		if d.Lane != v1alpha1.ExemptLane {
			st.DeadlineTime = timeOrNil(children.DeadlineOf(m, s.scheduled, now))
		}
	}
	s.scheduled.Status.Departure = st
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.UTC()))
}

// reportChildren writes references to the children that exist. Of the host it writes the accepted data, which the next
// reconcile reads as known.
func (s *scope) reportChildren() {
	st := &s.scheduled.Status
	c := s.children
	st.BootstrapRef, st.InfrastructureRef, st.MachineRef, st.NodeRef, st.ProviderID = nil, nil, nil, nil, ""
	if c.Bootstrap != nil {
		st.BootstrapRef = childReference(c.Bootstrap, c.Bootstrap.GetAPIVersion(), c.Bootstrap.GetKind())
	}
	if c.Infrastructure != nil {
		st.InfrastructureRef = childReference(c.Infrastructure, c.Infrastructure.GetAPIVersion(), c.Infrastructure.GetKind())
	}
	m := c.Machine
	if m == nil {
		return
	}
	st.MachineRef = childReference(m, clusterv1.GroupVersion.String(), "Machine")
	st.MachineRef.DeletionTimestamp = m.DeletionTimestamp
	st.ProviderID = s.acceptedHost.ProviderID
	st.LastScheduledTime = timeOrNil(children.CreatedAt(m))
	if s.acceptedHost.Node != "" && !s.nodeGone() {
		st.NodeRef = &v1alpha1.NodeReference{Name: s.acceptedHost.Node, MachineID: s.acceptedHost.MachineID}
	}
}

func childReference(obj client.Object, apiVersion, kind string) *v1alpha1.ChildReference {
	return &v1alpha1.ChildReference{APIVersion: apiVersion, Kind: kind, Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID()}
}
