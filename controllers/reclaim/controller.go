// SPDX-License-Identifier: Apache-2.0

// Package reclaim carries out emergency reclaims, one step per reconcile (see lifecycle.Step). It reads the request of
// an owner on the Node or on the ScheduledMachine. It deletes the Machine and its infrastructure, taints the Node, and
// disables the schedule. Its queue, and its client without a rate limit, are separate, so that no other controller
// delays an owner.
package reclaim

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Reconciler carries out emergency reclaims.
type Reconciler struct {
	// Clock is the time source of reports and back-offs. RestoreRequest and the delay of DisableSchedule depend on it.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines, Machines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads the Machine and the provider objects to remove.
	Children children.Reader
	// Actuate writes to the management cluster, without a client-side rate limit.
	Actuate *actuate.Actuator
	// ClusterCache provides the connections to workload clusters, for the Nodes.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// ReclaimTracker tracks reclaims that are being served or that have stalled.
	ReclaimTracker *wake.ReclaimTracker
	// Hooks configures how a removal handles deletion hooks of others.
	Hooks children.ForeignHookPolicy

	nodes       workload.Watch
	watchFilter string
	// lastScreened maps a ScheduledMachine to the latest report of a request that is not served.
	lastScreened sync.Map
	// rejections deduplicates the Events about malformed requests on Nodes.
	rejections telemetry.Rejections
	surges     telemetry.EventLimit
	// deletions maps a ScheduledMachine to when its Machine was deleted, until the record of the reclaim is written. The
	// Machine's deletionTimestamp has whole seconds, and is used only after a restart.
	deletions sync.Map
	// fresh detects a stale cache that still shows a Machine from before its ejection. nodeWrites tracks the conflicts of
	// writes to Nodes, so that their back-off does not delay a removal.
	fresh, nodeWrites wake.Freshness
	// backoff is the rate limiter of the queue. Its delays are short while an owner waits.
	backoff *reclaimBackoff
	// calls limits the concurrent calls to providers and workload clusters.
	calls callLimiter
}

// Reconcile carries out the next step of an emergency reclaim. Without a request it only cleans up after
// an earlier one.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.forgetAll(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !workload.MatchesFilter(r.watchFilter, sm) {
		return ctrl.Result{}, nil // An event of its Cluster, Machine or Node enqueued it; another manager serves it.
	}
	s, err := r.observe(ctx, sm)
	if err != nil {
		return r.end(req, s, lifecycle.NoStep, err)
	}
	if s == nil {
		return ctrl.Result{}, nil
	}
	if s.children.Machine == nil && !sm.BeingReclaimed() { // The reclaim was served, maybe by a write without an answer.
		r.deletions.Delete(req.NamespacedName)
	}
	if wait := r.fresh.Wait(req, s.machineVersion(), r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	facts := r.facts(s)
	step, urgent := lifecycle.Urgent(facts)
	if !urgent {
		r.readNodeAndProvider(ctx, s)
		facts = r.facts(s)
		step = lifecycle.DecideReclaim(facts)
	}
	r.reportScreened(ctx, s, screened(facts, step))
	r.reportAnnotations(ctx, s)
	if wait := r.delay(req, s, step); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err = r.serve(ctx, req, s, step)
	s.unrecorded = actuate.IgnoreSuppressed(r.recordGiveBack(ctx, s))
	return r.end(req, s, step, err)
}

// delay returns how long a step must wait after a conflict. DisableSchedule also waits while several reclaims are in
// progress, because its Machine is gone.
func (r *Reconciler) delay(req ctrl.Request, s *scope, step lifecycle.Step) time.Duration {
	now := r.Clock.Now()
	wait := r.conflicts(step).Hold(req, s.machineVersion(), now)
	if step == lifecycle.DisableSchedule {
		wait = max(wait, r.ReclaimTracker.Wait(s.scheduled.ReclaimTimes(), now))
	}
	return wait
}

// conflicts returns the state of the conflicts of a step.
func (r *Reconciler) conflicts(step lifecycle.Step) *wake.Freshness {
	switch step {
	case lifecycle.Evict, lifecycle.DeleteNode, lifecycle.Clear:
		return &r.nodeWrites
	default:
		return &r.fresh
	}
}

// forgetAll removes the state of a deleted object.
func (r *Reconciler) forgetAll(req ctrl.Request) {
	r.lastScreened.Delete(req.NamespacedName)
	r.deletions.Delete(req.NamespacedName)
	r.rejections.Forget(req.NamespacedName)
	r.fresh.Forget(req)
	r.nodeWrites.Forget(req)
	r.ReclaimTracker.ClearStuck(req)
}

// serve carries out one step. While a step deletes a Machine, ReclaimTracker counts a waiting owner. After the
// ejection, the cached version of the Machine is stale.
func (r *Reconciler) serve(ctx context.Context, req ctrl.Request, s *scope, step lifecycle.Step) error {
	if s.deleted() && s.scheduled.BeingReclaimed() { // This process may have started since.
		r.deletions.LoadOrStore(req.NamespacedName, s.children.Machine.DeletionTimestamp.Time)
	}
	takes := s.children.Machine != nil && !s.deleted() && (step == lifecycle.RecordRequest || step == lifecycle.Eject)
	if !takes {
		return r.act(ctx, s, step)
	}
	defer r.ReclaimTracker.Serve()()
	err := r.act(ctx, s, step)
	if s.ejected {
		r.fresh.MarkStale(req, s.machineVersion())
	}
	return err
}

// end returns when to reconcile again, and with which priority. A failed read is returned as an error only after all
// other work.
func (r *Reconciler) end(req ctrl.Request, s *scope, step lifecycle.Step, actErr error) (ctrl.Result, error) {
	urgency := urgencyOf(s, step)
	r.backoff.urgency.Store(req, urgency)
	result, err := r.conflicts(step).ResultOf(req, r.Clock.Now(), actErr)
	if errors.Join(actErr, s.unread, s.unseen) == nil {
		r.nodeWrites.Forget(req) // The Node needs no write any more, so earlier conflicts do not count.
	}
	switch {
	case actuate.IsSuppressed(actErr):
		r.reportSuppressed(req, s, step)
	case errors.Is(errors.Join(actErr, s.unread), errCallLimit): // The limit of concurrent calls is no error of this machine.
	case err != nil && urgency == ownerUrgent, err != nil && step == lifecycle.Eject:
		r.reportStalled(req, s, string(apierrors.ReasonForError(err)), err)
	case s.unread != nil && s.scheduled.BeingReclaimed():
		r.reportStalled(req, s, "unread", s.unread)
	case actErr == nil:
		r.ReclaimTracker.ClearStuck(req)
	}
	if actErr == nil {
		err = errors.Join(s.unread, s.unseen, s.unrecorded)
	}
	if errors.Is(err, errCallLimit) {
		result, err = ctrl.Result{RequeueAfter: callRetryDelay}, nil
	}
	if urgency != ownerUrgent {
		result.Priority = new(0) // Machines of waiting owners come first.
	}
	return result, err
}

// facts converts the observed objects to the facts of the decision, which has no Kubernetes types.
func (r *Reconciler) facts(s *scope) lifecycle.ReclaimFacts {
	f := lifecycle.ReclaimFacts{
		Recorded:   s.scheduled.BeingReclaimed(),
		Reappeared: s.existsAfterReclaim(),
		Request:    s.classifyRequest(s.node),
		Expedited:  s.children.Expedited(),
		Ejected:    s.providerRead && s.children.Removed(r.Hooks),
		// An unreadable object is not known to be absent.
		InfrastructureGone: s.providerRead && s.unread == nil && s.children.InfrastructureState() == lifecycle.Absent && len(s.children.Problems) == 0,
	}
	if m := s.children.Machine; m != nil {
		f.Machine, f.ControlPlane = s.children.MachineState(), util.IsControlPlaneMachine(m)
		f.ForOwner = children.ForOwner(m, r.Clock.Now())
	}
	// A request of a person does not have the Node's UID.
	if uid := s.ownerRequest().NodeUID; s.node != nil && (uid == "" || uid == s.node.UID) {
		f.Node, f.RequestNamesNode = children.PresenceOf(s.node), uid != ""
	}
	f.Evicting = s.node != nil && actuate.Evicting(s.node)
	return f
}
