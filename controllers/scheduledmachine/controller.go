// SPDX-License-Identifier: Apache-2.0

// Package scheduledmachine reconciles ScheduledMachines. It evaluates the schedule, the owner's requests and the kill
// switch. It creates the Machine, bootstrap config and infrastructure machine when a window opens, and requests a
// departure when it closes: package departure deletes the Machine. It writes the status and requeues at the next
// instant at which the decision changes. Package reclaim carries out emergency reclaims. This package reports them,
// deletes a Node that outlived its machine, and ejects the machine of an object that is being deleted.
package scheduledmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Reconciler reconciles ScheduledMachines.
type Reconciler struct {
	// Clock is the time source.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads the Machine, bootstrap config and infrastructure machine of a ScheduledMachine.
	Children children.Reader
	// Actuate carries out all writes, or suppresses them during a pause and a dry run.
	Actuate *actuate.Actuator
	// Unlimited is like Actuate without a client-side rate limit, for the removal by a kill switch and its report. Nil
	// means Actuate.
	Unlimited *actuate.Actuator
	// Live reads from the API server where a stale cache would cause a wrong decision.
	Live client.Reader
	// ClusterCache provides the connections to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Watch starts a watch on the kind of a child. Its events enqueue the ScheduledMachine of the child. The kinds are
	// known only at run time. It is idempotent. SetupWithManager sets it.
	Watch func(client.Object) error
	// Hooks configures how the kill switch handles deletion hooks of others. Status also uses it to report what a
	// reclaim waits for.
	Hooks children.ForeignHookPolicy
	// ReclaimTracker tracks reclaims that are being served or that have stalled.
	ReclaimTracker *wake.ReclaimTracker
	// APIClock reports whether Clock is trustworthy; nil means that it is.
	APIClock *apiclock.Clock
	// Backoff is the back-off after a failure. SetupWithManager sets it.
	Backoff workqueue.TypedRateLimiter[ctrl.Request]

	watchFilter string
	fresh       wake.Freshness
	// hosts has the hosts that are reserved in memory.
	hosts hosts.Reservations
	// progress delays reports of progress.
	progress wake.ReportDelay
	// sampled is when the API server's time was last requested, in Unix nanoseconds.
	sampled atomic.Int64
	surges  telemetry.EventLimit
	// rejections deduplicates the Events about rejected host data.
	rejections telemetry.Rejections
	// measured maps a ScheduledMachine to the edge whose lag was measured last, in Unix seconds.
	measured sync.Map
}

// Reconcile moves one ScheduledMachine one step towards its desired state. It returns no error of a step: after an
// error, controller-runtime ignores RequeueAfter and backs off for up to 1000 s, past the edge of a window. Backoff
// retries after 1 s to 5 min, or at the edge if that is sooner; a departure after wake.MaxDepartureRetry at most.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.Backoff.Forget(req)
		r.fresh.Forget(req)
		r.progress.Over(req)
		r.rejections.Forget(req.NamespacedName)
		r.measured.Delete(req.NamespacedName)
		r.hosts.Leave(req.String())
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !workload.MatchesFilter(r.watchFilter, sm) {
		r.hosts.Leave(req.String())
		return ctrl.Result{}, nil // An event of its Cluster or a child enqueued it; another manager serves it.
	}
	return r.serve(ctx, req, sm), nil
}

// serve reconciles sm, unless the cache is stale, a back-off lasts, or several emergency reclaims are in progress. It
// returns when to reconcile again. An edge of the window ends the first two waits.
func (r *Reconciler) serve(ctx context.Context, req ctrl.Request, sm *v1alpha1.ScheduledMachine) ctrl.Result {
	read, now := sm.ResourceVersion, r.Clock.Now()
	edge := machineschedule.Resolve(sm, now).Change
	r.fresh.Input(req, sm.Generation, edge)
	if delay := r.fresh.Hold(req, read, now); delay > 0 {
		return wakeUp{at: instant.Earliest(edge, now.Add(delay))}.result(now)
	}
	if delay := r.ReclaimTracker.Wait(sm.ReclaimTimes(), now); delay > 0 && r.ReclaimTracker.StuckReason(req) == "" {
		return ctrl.Result{RequeueAfter: delay}
	}
	next, err := r.reconcile(ctx, sm)
	r.fresh.Wrote(req, read, sm.ResourceVersion)
	if apierrors.IsConflict(err) && isAbout(sm, err) {
		r.fresh.MarkStale(req, read)
	}
	now = r.Clock.Now()
	soon, err := r.fresh.ResultOf(req, now, err)
	switch {
	case soon.RequeueAfter > 0:
		next = wakeUp{at: now.Add(soon.RequeueAfter)}
	case err == nil && !next.retry:
		r.Backoff.Forget(req)
		return next.result(now)
	default:
		next.departs = next.departs || !apierrors.IsConflict(err) && isDue(sm, now) // A conflict concerns the status, and delays no departure.
		next = r.retry(ctx, req, next, err)
	}
	next.at = instant.Earliest(edge, next.at)
	return next.result(now)
}

// retry returns when to retry a reconcile that ended with err, or that could not finish.
func (r *Reconciler) retry(ctx context.Context, req ctrl.Request, next wakeUp, err error) wakeUp {
	now, backoff := r.Clock.Now(), r.Backoff.When(req)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reconciling ScheduledMachine")
		telemetry.Failed(name)
	}
	if next.departs {
		// If a fault lasts past a shared window end, the machines leave within this time after the fault. The jitter of up
		// to a half spreads their tries: a thousand machines make about 44 tries per second, and --kube-api-qps allows 1000.
		backoff = min(backoff, wait.Jitter(wake.MaxDepartureRetry/2, 1))
		r.fresh.Shorten(req, now.Add(backoff))
	}
	if retry := now.Add(backoff); !next.at.After(now) || retry.Before(next.at) {
		next.at = retry
	}
	return next
}

// isDue reports whether the machine of sm has to leave now. It reads only sm, because the reconcile may have failed
// before the decision.
func isDue(sm *v1alpha1.ScheduledMachine, now time.Time) bool {
	if sm.Status.MachineRef == nil {
		return sm.Status.Phase == v1alpha1.PhaseShuttingDown // Other objects of the machine are left.
	}
	window := machineschedule.Resolve(sm, now)
	return !window.Active && window.Err == nil || sm.Spec.KillSwitch || !sm.DeletionTimestamp.IsZero()
}

// isAbout reports whether an API error is about sm, and not about a child.
func isAbout(sm *v1alpha1.ScheduledMachine, err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return false
	}
	about := status.ErrStatus.Details
	return about.Group == v1alpha1.GroupVersion.Group && about.Name == sm.Name
}

// reconcile observes, decides, acts and reports. It returns when to reconcile again.
func (r *Reconciler) reconcile(ctx context.Context, sm *v1alpha1.ScheduledMachine) (wakeUp, error) {
	s, err := r.observe(ctx, sm)
	if err != nil {
		return wakeUp{}, fmt.Errorf("observing: %w", err)
	}
	if wrote, err := r.prepare(ctx, s); err != nil || wrote {
		return wakeUp{at: r.Clock.Now()}, err // Continue when the cache shows the write.
	}
	if s.paused {
		return wakeUp{}, nil
	}
	s.before = sm.DeepCopy()
	r.announceRejected(ctx, s)
	if late, err := r.clearUrgentDeparture(ctx, s); err != nil || late {
		return wakeUp{}, err // The event of the newer ScheduledMachine triggers a reconcile.
	}
	return r.move(ctx, s)
}

// move decides, acts and reports on the observed state.
func (r *Reconciler) move(ctx context.Context, s *scope) (wakeUp, error) {
	evaluations.Inc()
	now := r.Clock.Now()
	s.clockSuspect = r.APIClock.Trust() == rails.Suspect // It is read after now: the clock may be set in between.
	if delay := s.ejectionDelay(now); delay > 0 {
		return wakeUp{at: now.Add(delay)}, nil
	}
	d, err := r.reserveAndDecide(ctx, s, now)
	if err != nil {
		return wakeUp{}, err
	}
	if d.Suspended {
		r.sampleServerTime(ctx, s.scheduled, now)
		d.Recheck = instant.Earliest(d.Recheck, now.Add(rails.Apart))
	}
	actErr := r.act(ctx, s, d)
	if actErr == nil && s.pending != workDone {
		r.observeLag(s, r.Clock.Now())
	}
	metadataLater, metadataErr := r.restoreMetadata(ctx, s, d)
	if actErr == nil && metadataErr == nil && (d.Action == lifecycle.Release || s.pending != workDone) {
		next := instant.Earliest(d.Recheck, s.reportAt)
		if s.pending == workFollows {
			next = r.Clock.Now().Add(createdCheckDelay)
		}
		return wakeUp{at: next}, nil
	}
	again, reportErr := r.report(ctx, s, d, actErr)
	err = actuate.IgnoreSuppressed(errors.Join(actErr, metadataErr, reportErr))
	now = r.Clock.Now()
	next := wakeUp{
		at:    instant.Earliest(instant.Earliest(d.Recheck, again), s.nextProbe(now)),
		retry: len(s.children.Unread) > 0 || s.nodeLater || metadataLater, departs: d.Action.Departs(),
	}
	if d.Again && err == nil && !s.suppressed {
		next.at = now
	}
	if conditions.IsTrue(s.scheduled, v1alpha1.ReadyCondition) {
		next.priority = onTime
	}
	return next, err
}

// restoreMetadata restores 5-Spot's label and owner reference on children, makes the Cluster an owner of templates, and
// withdraws a departure. After a conflict, later is true: nothing waits for these writes, so a retry suffices.
func (r *Reconciler) restoreMetadata(ctx context.Context, s *scope, d lifecycle.Decision) (later bool, err error) {
	err = actuate.IgnoreSuppressed(errors.Join(r.withdrawDeparture(ctx, s, d), r.claimChildren(ctx, s), r.keepTemplates(ctx, s)))
	if apierrors.IsConflict(err) {
		return true, nil
	}
	return false, err
}

// createdCheckDelay is when a created object is checked if its watch event does not arrive, for example for the first
// object of a kind. An earlier check would create it again and fail with AlreadyExists.
const createdCheckDelay = 2 * wake.QuietRetry

// probeInterval is how often Cluster API's cluster cache probes a workload cluster. One that failed
// failedProbes probes in a row is reported: a single probe fails under load, too.
const (
	probeInterval = 10 * time.Second
	failedProbes  = 2
)

// nextProbe is when to check the probes of an open connection again: the cluster cache sends no
// event when a probe succeeds after a failure. It sends one when it closes and opens a connection.
func (s *scope) nextProbe(now time.Time) time.Time {
	if !s.connected || s.probes.ConsecutiveFailures == 0 {
		return time.Time{}
	}
	return now.Add(probeInterval)
}

// ejecting bounds how long a report waits for the deletion of a Machine that package reclaim ejects. It covers the
// slowest reclaim of a mass return.
const ejecting = 15 * time.Second

// ejectionDelay returns how long to leave the object to package reclaim, which deletes the Machine of a waiting owner
// within moments. A status write now would delay that deletion at the API server. The Machine's deletion enqueues the
// object. So does a reclaim that stalls, which the status must show at once.
func (s *scope) ejectionDelay(now time.Time) time.Duration {
	m := s.children.Machine
	if s.stalled != "" || !s.scheduled.BeingReclaimed() || m == nil || !m.DeletionTimestamp.IsZero() {
		return 0
	}
	return wake.Remaining(ejecting, s.scheduled.ReclaimTimes(), now)
}

// prepare propagates an owner's request, adds the finalizer and owner, and sets the Paused condition. It reports
// whether it wrote.
func (r *Reconciler) prepare(ctx context.Context, s *scope) (bool, error) {
	sm := s.scheduled
	read := sm.ResourceVersion
	if wrote, err := r.propagateReclaim(ctx, s); err != nil || wrote {
		return wrote, err
	}
	if err := actuate.IgnoreSuppressed(r.addMetadata(ctx, s)); err != nil || sm.ResourceVersion != read {
		return sm.ResourceVersion != read, err
	}
	if !s.paused && !conditions.Has(sm, clusterv1.PausedCondition) {
		return false, nil // The first report adds the condition. A wrong one is corrected before any action.
	}
	wrote, err := r.actuator(sm).Paused(ctx, s.cluster, sm)
	if wrote {
		r.fresh.MarkStale(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)}, read)
	}
	return wrote, actuate.IgnoreSuppressed(err)
}

// addMetadata adds the metadata that 5-Spot needs before it creates children. The finalizer keeps the object until its
// children are deleted. The owner reference includes it in clusterctl move of its Cluster. The label is Cluster API's
// cluster name label.
func (r *Reconciler) addMetadata(ctx context.Context, s *scope) error {
	sm := s.scheduled
	if !sm.DeletionTimestamp.IsZero() || s.paused {
		return nil
	}
	before := sm.DeepCopy()
	isNew := controllerutil.AddFinalizer(sm, v1alpha1.ScheduledMachineFinalizer)
	adopted, err := r.adoptReclaimRecord(ctx, sm, isNew)
	if err != nil {
		return err
	}
	metav1.SetMetaDataLabel(&sm.ObjectMeta, clusterv1.ClusterNameLabel, sm.Spec.ClusterName)
	if s.cluster != nil {
		sm.OwnerReferences = util.EnsureOwnerRef(sm.OwnerReferences, children.ClusterReference(s.cluster))
	}
	if isNew {
		r.restoreReclaim(ctx, sm)
	}
	lending.Note(sm, r.Clock.Now())
	if err := r.actuator(sm).PatchLocked(ctx, sm, before); err != nil || adopted == nil || sm.ResourceVersion != before.ResourceVersion {
		return err
	}
	return r.Actuate.Delete(ctx, adopted) // The patch stored the record on the new object.
}

// claimChildren restores 5-Spot's label and owner reference on children. It runs after the action, because the action
// does not depend on them: the children were found already.
func (r *Reconciler) claimChildren(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.scheduled, v1alpha1.ScheduledMachineFinalizer) {
		return nil
	}
	var errs []error
	for _, child := range s.children.Existing() {
		before, ok := child.DeepCopyObject().(client.Object)
		if ok && children.Claim(child, s.scheduled) {
			errs = append(errs, kinds.IgnoreNoObject(r.Actuate.PatchLocked(ctx, child, before)))
		}
	}
	return errors.Join(errs...)
}

// withdrawDeparture removes the departure record from a Machine that was never deleted and that stays now. The next
// departure gets its own budget.
func (r *Reconciler) withdrawDeparture(ctx context.Context, s *scope, d lifecycle.Decision) error {
	m := s.children.Machine
	if m == nil || !children.CanWithdraw(m) || s.scheduled.BeingReclaimed() || d.Again || d.Action != lifecycle.Hold && d.Action != lifecycle.Ensure {
		return nil
	}
	return kinds.IgnoreNoObject(r.Actuate.EditLocked(ctx, m, children.Withdraw))
}

// clearUrgentDeparture removes an urgent departure record and its annotations, once neither a kill switch nor a reclaim
// is active. It does so only if the Machine was never deleted. It runs first, so that a later departure waits for its
// admission and drains. late reports that the ScheduledMachine was read before the request that the record is for.
func (r *Reconciler) clearUrgentDeparture(ctx context.Context, s *scope) (late bool, err error) {
	m := s.children.Machine
	if m == nil || !children.UrgencyWithdrawn(m, s.scheduled) {
		return false, nil
	}
	live := &v1alpha1.ScheduledMachine{}
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(s.scheduled), live); {
	case apierrors.IsNotFound(err), err == nil && !children.UrgencyWithdrawn(m, live):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading ScheduledMachine: %w", err)
	}
	return false, actuate.IgnoreSuppressed(kinds.IgnoreNoObject(r.Actuate.EditLocked(ctx, m, children.Withdraw)))
}

// keepTemplates makes the Cluster an owner of the templates of a new spec, and of templates that were read to create a
// child. Cluster API does the same for MachineDeployments: without it clusterctl move would omit the templates, and no
// machine could join. It skips templates of a ClusterClass, which move with the class. It runs after the action,
// because no departure depends on templates.
func (r *Reconciler) keepTemplates(ctx context.Context, s *scope) error {
	sm, templates := s.scheduled, s.children.Templates
	if s.cluster == nil || !sm.DeletionTimestamp.IsZero() {
		return nil
	}
	if len(templates) == 0 && sm.Status.ObservedGeneration != sm.Generation {
		var err error
		if templates, err = r.Children.Templates(ctx, sm); err != nil {
			return err
		}
	}
	for _, t := range templates {
		refs := t.GetOwnerReferences()
		if slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.Kind == "ClusterClass" }) {
			continue
		}
		before := t.DeepCopy()
		t.SetOwnerReferences(util.EnsureOwnerRef(refs, children.ClusterReference(s.cluster)))
		if err := r.Actuate.PatchLocked(ctx, t, before); err != nil {
			return err
		}
	}
	return nil
}

// onTime is the priority in the queue of an object that waits only for an instant. Others have priority zero, like
// watch events. Without a priority, a requeued object keeps the priority of its last event, which is low after a start
// of the manager. At an edge that many machines share, second steps of some would run before first steps of others.
const onTime = 1

// A wakeUp is when to reconcile an object again. The zero value is never.
type wakeUp struct {
	at       time.Time
	priority int
	// retry requests a retry after a back-off: an object could not be read, or a Node not be deleted.
	retry bool
	// departs reports that a departure is due.
	departs bool
}

// result converts a wakeUp to a Result. A past instant requeues at once, because a zero RequeueAfter means "do not
// requeue".
func (w wakeUp) result(now time.Time) ctrl.Result {
	if w.at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(w.at.Sub(now), time.Millisecond), Priority: &w.priority}
}
