// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// callStepsAndExtensions calls the extensions that are due, all in parallel, and checks the steps. It removes the hook
// of the phase when none of them holds the Machine.
func (r *HookReconciler) callStepsAndExtensions(ctx context.Context, s *scope, phase hooksv1.Phase, hook string) (again time.Time, err error) {
	if err := r.action(s).Record(ctx, s.machine); err != nil {
		return time.Time{}, err
	}
	o := outcome{missed: map[string]bool{}}
	r.HookCaller.RetainSteps(s.machine.UID, string(phase), s.extensions()...)
	now := r.Clock.Now()
	for i, request := 0, s.request(phase, now); i < len(s.hooks); i++ {
		h := &s.hooks[i]
		q := leaving.CallKey{Machine: s.machine.UID, Step: h.UID, Phase: string(phase)}
		v := judge(h, r.HookCaller.Progress(q, h.Generation), s.began(phase, now), now)
		if v.call {
			r.HookCaller.StartCall(ctx, client.ObjectKeyFromObject(s.machine), q, h.Generation, r.call(h, request))
		}
		v.Reason = v1alpha1.WaitingForExtensionReason
		o.add(r.holdIfClockSuspect(v, now))
	}
	if err := r.checkSteps(ctx, s, phase, &o, now); err != nil {
		return time.Time{}, err
	}
	switch {
	case o.early:
		return o.again, nil
	case o.holds:
		return o.again, r.report(ctx, s, metav1.ConditionFalse, o.reason, o)
	case phase != hooksv1.BeforeDrain:
		o.skip = actuate.Waits{}
	}
	done := v1alpha1.StepsCompletedReason
	if o.forced {
		done = v1alpha1.StepsSkippedReason
	}
	reported := r.report(ctx, s, metav1.ConditionTrue, done, o)
	if reported != nil && !apierrors.IsForbidden(reported) && !apierrors.IsInvalid(reported) {
		return time.Time{}, reported
	}
	// An admission webhook that rejects the report does not hold the Machine.
	return time.Time{}, errors.Join(reported, r.action(s).RemoveHooks(ctx, s.machine, o.skip, hook))
}

// checkSteps adds the verdicts of the steps to o.
func (r *HookReconciler) checkSteps(ctx context.Context, s *scope, phase hooksv1.Phase, o *outcome, now time.Time) error {
	if len(s.steps) == 0 {
		return nil
	}
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}
	for _, step := range s.steps {
		v, err := step.Check(ctx, leaving.Departing{Machine: s.machine, Node: node, Phase: phase, Began: s.began(phase, now), Grace: children.GraceDuring(s.machine, s.scheduled, now)}, now)
		if err != nil {
			return err
		}
		o.add(r.holdIfClockSuspect(verdict{Verdict: v}, now))
	}
	return nil
}

// holdIfClockSuspect changes a verdict whose deadline has passed: it holds the Machine while the clock is suspect,
// because the deadline may not have passed.
func (r *HookReconciler) holdIfClockSuspect(v verdict, now time.Time) verdict {
	if v.Missed && r.APIClock.Trust() == rails.Suspect {
		v.Missed, v.Holds, v.Again = false, true, now.Add(rails.Apart)
		v.Note += "; the Machine waits while the manager's clock may be wrong"
	}
	return v
}

// node returns the name of the Machine's Node, empty if none is accepted: see children.Reader.Host.
func (r *HookReconciler) node(ctx context.Context, s *scope) (string, error) {
	if s.scheduled == nil {
		return s.machine.Status.NodeRef.Name, nil
	}
	host, err := children.Reader{Cached: r.Reader, Live: r.Live}.Host(ctx, s.scheduled, s.machine)
	return host.Node, err
}

// outcome is the combination of all verdicts on a Machine.
type outcome struct {
	holds, early bool
	// reason is the reason of the first verdict that holds the Machine, except WaitingForResponseReason.
	reason string
	// forced reports that an extension or step that is not done is skipped.
	forced bool
	// missed has the reasons of the verdicts whose deadline has passed.
	missed map[string]bool
	// again is the first instant at which a verdict changes without an event.
	again time.Time
	notes []string
	skip  actuate.Waits
}

func (o *outcome) add(v verdict) {
	if v.Holds && (!o.holds || o.reason == v1alpha1.WaitingForResponseReason) {
		o.reason = v.Reason
	}
	o.forced = o.forced || v.Missed || v.Failed
	if v.Missed {
		o.missed[v.Reason] = true
	}
	o.holds, o.early = o.holds || v.Holds, o.early || v.early
	o.again = instant.Earliest(o.again, v.Again)
	if v.Note != "" {
		o.notes = append(o.notes, v.Note)
	}
	o.skip.Drain = o.skip.Drain || v.skip.Drain
	o.skip.VolumeDetach = o.skip.VolumeDetach || v.skip.VolumeDetach
}

// extensions returns the UIDs of the extensions, which are the steps of the HookCaller.
func (s *scope) extensions() []types.UID {
	var steps []types.UID
	for i := range s.hooks {
		steps = append(steps, s.hooks[i].UID)
	}
	return steps
}

// call returns the function that calls an extension.
func (r *HookReconciler) call(h *v1alpha1.MachineDeletionHook, request *hooksv1.BeforeMachineDeleteRequest) func(context.Context) leaving.Response {
	return func(ctx context.Context) leaving.Response {
		response, err := r.Extensions.Call(ctx, h, request)
		if err != nil {
			ctrl.LoggerFrom(ctx).V(4).Info("Extension failed", "MachineDeletionHook", h.Name, "err", err, "cause", errors.Unwrap(err))
			return leaving.Response{Err: err}
		}
		return leaving.Response{
			Wait: time.Duration(response.RetryAfterSeconds) * time.Second, Message: response.Message,
			SkipDrain: response.SkipDrain, SkipVolumeDetach: response.SkipVolumeDetachWait,
		}
	}
}

// began returns when the phase began. For the second phase, Cluster API writes it to the status before decide
// returns callBeforeTermination.
func (s *scope) began(phase hooksv1.Phase, now time.Time) time.Time {
	if phase == hooksv1.BeforeTermination {
		return s.machine.Status.Deletion.WaitForPreTerminateHookStartTime.Time
	}
	return children.GraceBegan(s.machine, s.scheduled, now)
}

// request returns the request for the extensions.
func (s *scope) request(phase hooksv1.Phase, now time.Time) *hooksv1.BeforeMachineDeleteRequest {
	req := &hooksv1.BeforeMachineDeleteRequest{Machine: *s.machine.DeepCopy(), Phase: phase, Trigger: s.trigger(now)}
	req.Machine.ManagedFields = nil
	if s.scheduled != nil {
		req.ScheduledMachine = s.scheduled.Name
	}
	return req
}

// notifyExtensions notifies all extensions, once, of a Machine whose urgent deletion waits for none of them.
func (r *HookReconciler) notifyExtensions(ctx context.Context, s *scope) {
	if _, notified := r.notified.LoadOrStore(s.machine.UID, true); notified {
		return
	}
	request := s.request(hooksv1.BeforeDrain, r.Clock.Now())
	for i := range s.hooks {
		h := &s.hooks[i]
		limit := max(time.Duration(h.Spec.DeadlineSeconds)*time.Second, hookclient.Timeout(h))
		r.HookCaller.Notify(ctx, h.UID, limit, func(ctx context.Context) {
			if _, err := r.Extensions.Call(ctx, h, request); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Notifying extension", "MachineDeletionHook", h.Name)
			}
		})
	}
}

// report writes the condition ReadyForDeletion. While the Machine waits, it records an Event only if status or reason
// changes, because an extension may count down in its message. At the end of a phase the message counts, too: the
// condition may be True since the end of the first phase. It records no Event for WaitingForResponseReason: nothing has
// responded yet.
func (r *HookReconciler) report(ctx context.Context, s *scope, status metav1.ConditionStatus, reason string, o outcome) error {
	m, message := s.machine, clip.Message(strings.Join(o.notes, "; "))
	before := m.DeepCopy()
	conditions.Set(m, metav1.Condition{Type: v1alpha1.ReadyForDeletionCondition, Status: status, Reason: reason, Message: message})
	if err := r.Actuate.PatchStatus(ctx, m, before); err != nil {
		return err
	}
	r.count(s, o)
	was := conditions.Get(before, v1alpha1.ReadyForDeletionCondition)
	if was != nil && was.Status == status && was.Reason == reason && (status != metav1.ConditionTrue || was.Message == message) ||
		reason == v1alpha1.WaitingForResponseReason {
		return nil
	}
	kind := corev1.EventTypeNormal
	if reason == v1alpha1.StepsSkippedReason {
		kind = corev1.EventTypeWarning
	}
	if message != "" {
		r.Recorder.Eventf(m, nil, kind, reason, "BeforeMachineDelete", "%s", message)
	}
	return nil
}
