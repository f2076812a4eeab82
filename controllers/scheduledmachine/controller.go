// SPDX-License-Identifier: Apache-2.0

// Package scheduledmachine answers one question: what should this machine be
// doing now, and when does that change? It makes children when a window opens and
// lets Cluster API take them out when it closes. What an owner asks for in an
// emergency is done by package reclaim; here it is only shown.
package scheduledmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// Reconciler moves ScheduledMachines towards what their schedules ask.
type Reconciler struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Reader reads ScheduledMachines and Clusters from the manager's cache.
	Reader client.Reader
	// Children reads what a ScheduledMachine has brought into being.
	Children children.Reader
	// Actuate is the only way to write.
	Actuate *actuate.Actuator
	// Live reads from the API server what no cache may be late for.
	Live client.Reader
	// ClusterCache says which workload clusters are connected.
	ClusterCache clustercache.ClusterCache
	// Recorder records events.
	Recorder events.EventRecorder
	// Watcher starts watches on kinds of children, which are only known at run time.
	Watcher Watcher
	// Hooks says what the kill switch does about deletion hooks of others; status says
	// of a reclaim, too, what it waits for.
	Hooks children.Hooks
	// Rush knows of owners who wait for their machines; nil knows of none.
	Rush *wake.Rush
	// APIClock says whether Clock can be trusted; nil trusts it.
	APIClock *apiclock.Clock
	// Steps are done before a machine leaves. Package machinehook does them.
	Steps leaving.Steps
	// Roster says who may start to leave; nil lets everybody.
	Roster *roster.Roster
	// Backoff says how long to wait after a failure; nil is the contract's.
	Backoff workqueue.TypedRateLimiter[ctrl.Request]

	watchFilter string
	fresh       wake.Freshness
	// hosts knows who is about to use a host, and claims what others say of theirs.
	hosts     hosts.Book
	claims    claims
	differing wake.Differing
	departed  departed
	listened  listened
	surges    telemetry.EventLimit
	// rejections are what was not believed last.
	rejections telemetry.Rejections
	// measured has the edge, in Unix seconds, whose lag was measured last, by
	// ScheduledMachine.
	measured sync.Map
}

// A Watcher makes the objects of a child's kind wake their ScheduledMachine. It
// is idempotent.
type Watcher interface {
	Watch(obj client.Object) error
}

// Reconcile moves one ScheduledMachine one step towards what its schedule asks.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sm := &v1alpha1.ScheduledMachine{}
	if err := r.Reader.Get(ctx, req.NamespacedName, sm); err != nil {
		r.Backoff.Forget(req)
		r.fresh.Forget(req)
		r.differing.Over(req)
		r.departed.forget(req.NamespacedName)
		r.rejections.Forget(req.NamespacedName)
		r.measured.Delete(req.NamespacedName)
		r.hosts.Leave(req.String())
		r.claims.forget(req.NamespacedName)
		r.Actuate.Forget(req.NamespacedName, r.Clock.Now())
		r.Roster.Forget(req.NamespacedName, r.Clock.Now())
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter) {
		r.hosts.Leave(req.String())
		r.Roster.Forget(req.NamespacedName, r.Clock.Now())
		return ctrl.Result{}, nil // Its Cluster or a child woke us; it is another manager's.
	}
	read := sm.ResourceVersion
	r.fresh.Generation(req, sm.Generation)
	if wait := r.fresh.Hold(req, read, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if wait := r.Rush.Wait(sm.ReclaimTimes(), r.Clock.Now()); wait > 0 && r.Rush.Stalled(req) == "" {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	next, err := r.reconcile(ctx, sm)
	r.fresh.Wrote(req, read, sm.ResourceVersion)
	if apierrors.IsConflict(err) && concerns(sm, err) {
		r.fresh.Late(req, read)
	}
	soon, err := r.fresh.Meet(req, r.Clock.Now(), err)
	if soon.RequeueAfter > 0 {
		return soon, nil
	}
	if err == nil && !next.retry {
		r.Backoff.Forget(req)
		return next.result(r.Clock.Now()), nil
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reconciling ScheduledMachine")
		telemetry.Failed(name)
	}
	retry := r.Clock.Now().Add(r.Backoff.When(req))
	if !next.at.After(r.Clock.Now()) || retry.Before(next.at) {
		next.at = retry // But a window's edge does not wait for a back-off.
	}
	return next.result(r.Clock.Now()), nil
}

// concerns reports whether an API server's answer is about sm, and not about a child.
func concerns(sm *v1alpha1.ScheduledMachine, err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return false
	}
	about := status.ErrStatus.Details
	return about.Group == v1alpha1.GroupVersion.Group && about.Name == sm.Name
}

// reconcile observes, decides, asks whether it may, acts and reports, and says when to look again.
func (r *Reconciler) reconcile(ctx context.Context, sm *v1alpha1.ScheduledMachine) (wakeUp, error) {
	s, err := r.observe(ctx, sm)
	if err != nil {
		return wakeUp{}, fmt.Errorf("observing: %w", err)
	}
	if wrote, err := r.prepare(ctx, s); err != nil || wrote {
		return r.wakeUp(time.Time{}, wrote), err // Go on from what the cache then shows.
	}
	if s.paused {
		now := r.Clock.Now()
		r.Roster.Tell(client.ObjectKeyFromObject(sm), s.entry(lifecycle.Decision{}, now), now)
		return wakeUp{}, nil
	}
	s.before = sm.DeepCopy()
	r.announceRejected(ctx, s)
	return r.move(ctx, s)
}

// move decides, asks, acts and reports on what was observed.
func (r *Reconciler) move(ctx context.Context, s *scope) (wakeUp, error) {
	evaluations.Inc()
	now := r.Clock.Now()
	if wait := s.ejected(now); wait > 0 {
		return wakeUp{at: now.Add(wait)}, nil
	}
	if err := r.calmDown(ctx, s); err != nil {
		return wakeUp{}, err
	}
	d, err := r.decide(ctx, s, now)
	if err != nil {
		return wakeUp{}, err
	}
	if d = r.gate(s, r.doubt(ctx, s, d, now), now); s.unplanned() {
		// The planner looks at once, and wakes us. Who has been refused is held again meanwhile.
		return wakeUp{at: d.Recheck}, actuate.IgnoreSuppressed(r.withdraw(ctx, s, d))
	}
	r.Actuate.Seen(client.ObjectKeyFromObject(s.scheduled), s.children.Existing(), len(s.children.Unread) == 0, now)
	actErr := r.act(ctx, s, d)
	if s.starting {
		r.Roster.Tried(client.ObjectKeyFromObject(s.scheduled), s.children.Machine.UID, r.Clock.Now())
	}
	if actErr == nil && s.pending != nothing {
		r.observeLag(s, r.Clock.Now())
	}
	keepLater, keepErr := r.keep(ctx, s, d)
	if actErr == nil && keepErr == nil && (d.Action == lifecycle.Release || s.pending != nothing) {
		next := d.Recheck
		if s.pending == follows {
			next = r.Clock.Now().Add(unwatched)
		}
		return r.wakeUp(next, false), nil
	}
	again, reportErr := r.report(ctx, s, d, actErr)
	err = actuate.IgnoreSuppressed(errors.Join(actErr, keepErr, reportErr))
	next := r.wakeUp(departure.Sooner(departure.Sooner(d.Recheck, again), s.nextProbe(r.Clock.Now())), d.Again && err == nil && !s.frozen)
	next.retry = len(s.children.Unread) > 0 || s.nodeLater || keepLater
	if conditions.IsTrue(s.scheduled, v1alpha1.ReadyCondition) {
		next.priority = onTime
	}
	return next, err
}

// keep puts back what is ours, and reports whether that has to be tried again later: nobody waits
// for it, not the owner, nor the window's edge.
func (r *Reconciler) keep(ctx context.Context, s *scope, d lifecycle.Decision) (later bool, err error) {
	err = actuate.IgnoreSuppressed(errors.Join(r.withdraw(ctx, s, d), r.claimChildren(ctx, s), r.keepTemplates(ctx, s)))
	if apierrors.IsConflict(err) {
		return true, nil
	}
	return false, err
}

// decide is what to do at now, and when to look again: also when a tool has been named for
// long enough.
func (s *scope) decide(now time.Time) lifecycle.Decision {
	d := s.thaw(now, lifecycle.Decide(s.facts(now)))
	if mark, told := lending.Of(s.scheduled, now); told && (d.Recheck.IsZero() || mark.Ends().Before(d.Recheck)) {
		d.Recheck = mark.Ends()
	}
	return d
}

// unwatched is when an object that was made is looked for whose event does not come, such
// as the first of a kind. To look before its event is to make it again, and be refused.
const unwatched = 2 * wake.QuietRetry

// probeInterval is how often Cluster API's cluster cache probes a workload cluster. One that failed
// silentProbes probes in a row is reported: a single probe fails under load, too.
const (
	probeInterval = 10 * time.Second
	silentProbes  = 2
)

// nextProbe is when to check the probes of an open connection again: the cluster cache sends no
// event when a probe succeeds after a failure. It sends one when it closes and opens a connection.
func (s *scope) nextProbe(now time.Time) time.Time {
	if !s.connected || s.probes.ConsecutiveFailures == 0 {
		return time.Time{}
	}
	return now.Add(probeInterval)
}

// ejecting is how long a report waits for a Machine that is about to be ejected. It covers
// the slowest reclaim in a mass return.
const ejecting = 15 * time.Second

// ejected is how long package reclaim has this object to itself: the Machine of an
// owner who asked is being deleted any moment now. What we would report takes the API
// server's time, for which the owner waits. The Machine's deletion wakes us, and so does
// a reclaim that is refused: people must see that at once.
func (s *scope) ejected(now time.Time) time.Duration {
	m := s.children.Machine
	if s.stalled != "" || !s.scheduled.BeingReclaimed() || m == nil || !m.DeletionTimestamp.IsZero() {
		return 0
	}
	return wake.Left(ejecting, s.scheduled.ReclaimTimes(), now)
}

// prepare claims the object, and shows whether it is paused. It reports whether it
// wrote.
func (r *Reconciler) prepare(ctx context.Context, s *scope) (bool, error) {
	sm := s.scheduled
	read := sm.ResourceVersion
	if wrote, err := r.passOn(ctx, s); err != nil || wrote {
		return wrote, err
	}
	if err := actuate.IgnoreSuppressed(r.claim(ctx, s)); err != nil || sm.ResourceVersion != read {
		return sm.ResourceVersion != read, err
	}
	if !s.paused && !conditions.Has(sm, clusterv1.PausedCondition) {
		return false, nil // The first report shows it. One that says otherwise is corrected before anything is done.
	}
	wrote, err := r.Actuate.Paused(ctx, s.cluster, sm)
	if wrote {
		r.fresh.Late(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(sm)}, read)
	}
	return wrote, actuate.IgnoreSuppressed(err)
}

// claim makes the object findable before anything is made for it: the finalizer
// keeps it until its children are gone, the owner reference carries it along with
// its Cluster in clusterctl move, the label is Cluster API's.
func (r *Reconciler) claim(ctx context.Context, s *scope) error {
	sm := s.scheduled
	if !sm.DeletionTimestamp.IsZero() || s.paused {
		return nil
	}
	before := sm.DeepCopy()
	isNew := controllerutil.AddFinalizer(sm, v1alpha1.ScheduledMachineFinalizer)
	inherited, err := r.inherit(ctx, sm, isNew)
	if err != nil {
		return err
	}
	if sm.Labels == nil {
		sm.Labels = map[string]string{}
	}
	sm.Labels[clusterv1.ClusterNameLabel] = sm.Spec.ClusterName
	if s.cluster != nil {
		sm.OwnerReferences = withOwner(sm.OwnerReferences, s.clusterReference())
	}
	if isNew {
		r.restoreReclaim(ctx, sm)
	}
	lending.Note(sm, r.Clock.Now())
	if err := r.Actuate.PatchLocked(ctx, sm, before); err != nil || inherited == nil || sm.ResourceVersion != before.ResourceVersion {
		return err
	}
	return r.Actuate.Delete(ctx, inherited) // It is written down on the new object now.
}

// claimChildren puts back our label and our owner reference where somebody took one off.
// Nothing depends on the label, and it comes after the action: what is found by it is.
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

// withdraw takes the record of a departure off a Machine that was never deleted, and that
// nobody takes away any more: the next departure has a budget of its own.
func (r *Reconciler) withdraw(ctx context.Context, s *scope, d lifecycle.Decision) error {
	m := s.children.Machine
	if m == nil || !children.Abandoned(m) || s.scheduled.BeingReclaimed() || d.Action != lifecycle.Hold && d.Action != lifecycle.Ensure {
		return nil
	}
	return kinds.IgnoreNoObject(r.Actuate.Withdraw(ctx, m))
}

// calmDown takes off a record that a person or the owner wanted the machine at once, and what
// came with it, if neither does any more and nobody has deleted the Machine. It comes before
// everything else: a departure that follows waits for its turn, and is drained.
func (r *Reconciler) calmDown(ctx context.Context, s *scope) error {
	m := s.children.Machine
	if m == nil || !children.Outlived(m, s.scheduled) {
		return nil
	}
	return actuate.IgnoreSuppressed(kinds.IgnoreNoObject(r.Actuate.Withdraw(ctx, m)))
}

// clusterReference makes clusterctl move take an object along.
func (s *scope) clusterReference() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID,
	}
}

// keepTemplates ties the templates of a spec that is new, and those that were read to
// make something, to the Cluster, as Cluster API does with those of MachineDeployments:
// without them no machine would join after clusterctl move. Those of a ClusterClass go
// with it. It comes after the action: nobody waits for a template to leave.
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
		t.SetOwnerReferences(withOwner(refs, s.clusterReference()))
		if err := r.Actuate.PatchLocked(ctx, t, before); err != nil {
			return err
		}
	}
	return nil
}

// withOwner replaces an owner of the same kind and name, whatever its UID and
// version, or adds it.
func withOwner(refs []metav1.OwnerReference, want metav1.OwnerReference) []metav1.OwnerReference {
	for i, ref := range refs {
		if ref.Kind == want.Kind && ref.Name == want.Name {
			if ref.UID == want.UID {
				return refs
			}
			refs[i] = want
			return refs
		}
	}
	return append(refs, want)
}

// Priorities in the queue. Without one, an object keeps that of its last event,
// which after a start of the manager is below every other's: at an edge that many
// machines share, the second steps of some would come before the first steps of
// the rest.
const (
	// underWay is for an object that is not yet where it should be, as for any event.
	underWay = iota
	// onTime is for an object that only waits for an instant.
	onTime
)

// A wakeUp is when to look at an object again; the zero value is never.
type wakeUp struct {
	at       time.Time
	priority int
	// retry says that something could not be read, or that a Node could not be deleted, and
	// is looked at again after a back-off.
	retry bool
}

// wakeUp is at the given instant, or at once.
func (r *Reconciler) wakeUp(at time.Time, again bool) wakeUp {
	if again {
		at = r.Clock.Now()
	}
	return wakeUp{at: at, priority: underWay}
}

// result turns an instant into a requeue. A past instant requeues at once rather
// than never, because a zero RequeueAfter means "do not requeue".
func (w wakeUp) result(now time.Time) ctrl.Result {
	if w.at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(w.at.Sub(now), time.Millisecond), Priority: &w.priority}
}
