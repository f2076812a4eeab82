// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

const (
	// maxWriteTime bounds how long one round writes records, and how long it writes reports. The remaining Nodes follow
	// in the next round, so that an owner's machine does not wait for a thousand Nodes.
	maxWriteTime = time.Second
	// callTimeout is the timeout of all reads from a load balancer in one round, and of each call of Drain and Restore.
	callTimeout = 10 * time.Second
	// retryInterval is the delay after a failed call. throttledRetryInterval is the delay if the load balancer limits
	// the request rate.
	retryInterval, throttledRetryInterval = 5 * time.Second, 30 * time.Second
	// volatileRecheckInterval and recheckInterval are the intervals at which a detached Node is checked. The first is
	// for load balancers that lose drains at a restart. The second is for all others, where another party may restore
	// the Node.
	volatileRecheckInterval, recheckInterval = 10 * time.Second, time.Minute
)

// Drivers returns the Driver of each LoadBalancer. It is safe for concurrent use.
type Drivers interface {
	// For returns the Driver of a LoadBalancer. It sends no request.
	For(lb *expv1.LoadBalancer) (balancer.Driver, error)
	// Forget drops the Driver of a LoadBalancer that was deleted.
	Forget(lb types.NamespacedName)
}

// BalancerReconciler drains and restores the memberships of Nodes in one load balancer. It reads the LoadBalancer and
// the NodeAttachments of its Cluster. It writes the memberships that it drains, its progress, and the condition
// Reachable.
type BalancerReconciler struct {
	// Clock returns the current time.
	Clock clock.PassiveClock
	// Reader reads Clusters, LoadBalancers and NodeAttachments from the manager's cache. Live reads from the API
	// server.
	Reader, Live client.Reader
	// Actuate writes LoadBalancers and NodeAttachments.
	Actuate *actuate.Actuator
	// Recorder records events.
	Recorder events.EventRecorder
	// Drivers returns the driver of a LoadBalancer.
	Drivers Drivers
	// WatchFilter is the value of Cluster API's watch label. Empty means all objects.
	WatchFilter string

	fresh    wake.Freshness
	throttle statusThrottle
}

// Reconcile runs one round for one load balancer.
func (r *BalancerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	lb := &expv1.LoadBalancer{}
	if err := r.Reader.Get(ctx, req.NamespacedName, lb); err != nil {
		r.fresh.Forget(req)
		if apierrors.IsNotFound(err) {
			r.Drivers.Forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	if wait := r.fresh.Hold(req, lb.ResourceVersion, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	read := lb.ResourceVersion
	again, err := r.reconcile(ctx, lb)
	r.fresh.Wrote(req, read, lb.ResourceVersion)
	result, err := r.fresh.ResultOf(req, r.Clock.Now(), client.IgnoreNotFound(err))
	if err == nil && result.RequeueAfter == 0 {
		result.RequeueAfter = again
	}
	return result, err
}

func (r *BalancerReconciler) reconcile(ctx context.Context, lb *expv1.LoadBalancer) (again time.Duration, err error) {
	o, err := r.observe(ctx, lb)
	if err != nil || o == nil {
		return 0, err
	}
	if len(o.nodes) == 0 {
		return 0, r.finalize(ctx, o)
	}
	if err := r.addFinalizer(ctx, lb); err != nil {
		return 0, err
	}
	driver, err := r.Drivers.For(lb)
	if err == nil {
		o.every, o.volatile = driver.Every(), driver.Volatile()
		err = o.readMemberships(ctx, driver)
		r.refresh(ctx, o)
	}
	o.failed = err
	o.decide()
	var unwritten error
	if o.failed == nil {
		unwritten = r.act(ctx, o, driver)
	}
	if err := errors.Join(unwritten, r.report(ctx, o)); err != nil {
		return 0, err
	}
	if again = o.again(); again == 0 {
		return 0, r.finalize(ctx, o)
	}
	return again, nil
}

// observe reads the Cluster and its NodeAttachments. It returns nil if the Cluster is paused or belongs to another
// manager.
func (r *BalancerReconciler) observe(ctx context.Context, lb *expv1.LoadBalancer) (*round, error) {
	cluster, paused, err := workload.ClusterOf(ctx, r.Reader, r.Live, lb, lb.Spec.ClusterName)
	if err != nil {
		return nil, err
	}
	o := &round{lb: lb, cluster: cluster, now: r.Clock.Now()}
	if classic := lb.Spec.ClassicELB; classic != nil {
		o.wait = time.Duration(ptr.Deref(classic.WaitSeconds, 0)) * time.Second
	}
	switch {
	case clusterGone(cluster):
		return o, nil // The Cluster is being deleted or gone: no membership is restored.
	case paused, !workload.MatchesFilter(r.WatchFilter, cluster):
		return nil, nil
	}
	attachments, err := attachmentsOf(ctx, r.Reader, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	for i := range attachments {
		if s := nodeBalancerOf(lb, attachments[i].DeepCopy()); s != nil {
			o.nodes = append(o.nodes, s)
		}
	}
	slices.SortStableFunc(o.nodes, func(a, b *nodeBalancer) int { return cmp.Compare(a.rank(), b.rank()) })
	all, err := balancersOf(ctx, r.Reader, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	o.balancers = notDeleting(all)
	for _, s := range o.nodes {
		s.setSuccessors(lb, o.balancers)
	}
	return o, nil
}

// refresh reads the NodeAttachments again, because other load balancers have reported in the meantime. It keeps the old
// copy if the spec has changed, so that the later write fails with a conflict.
func (r *BalancerReconciler) refresh(ctx context.Context, o *round) {
	for _, s := range o.nodes {
		now := &expv1.NodeAttachment{}
		if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(s.attachment), now); err == nil && now.UID == s.attachment.UID &&
			now.DeletionTimestamp.IsZero() == s.attachment.DeletionTimestamp.IsZero() && equality.Semantic.DeepEqual(now.Spec, s.attachment.Spec) {
			s.attachment = now
		}
	}
}

// act writes the records, and then drains and restores. A failure of one Node does not affect other Nodes.
func (r *BalancerReconciler) act(ctx context.Context, o *round, driver balancer.Driver) error {
	var errs []error
	began := r.Clock.Now()
	for _, s := range o.nodes {
		if s.deferred = r.Clock.Since(began) >= maxWriteTime && len(s.steps) > 0; s.deferred {
			continue
		}
		switch err := r.record(ctx, o, driver, s); {
		case apierrors.IsInvalid(err): // The API rejects it, for example because there are too many memberships.
			s.failed, s.steps = err, make([]plan.MemberAction, len(s.members))
		case err != nil:
			s.deferred = true
			errs = append(errs, err)
		}
	}
	// Drains come first: a machine may wait for them.
	errs = append(errs, r.callDriver(ctx, o, plan.Drain, driver.Drain), r.callDriver(ctx, o, plan.Restore, driver.Restore))
	return errors.Join(errs...)
}

// callDriver calls Drain or Restore for all memberships with that step. After an error the state of these memberships
// and of their Nodes is unknown.
func (r *BalancerReconciler) callDriver(ctx context.Context, o *round, act plan.Act, do func(context.Context, []balancer.Membership) error) error {
	var memberships []balancer.Membership
	var nodes []*nodeBalancer // the Node of each membership
	for _, s := range o.nodes {
		for i, step := range s.steps {
			if step.Act == act && !s.deferred {
				memberships, nodes = append(memberships, s.members[i].Membership), append(nodes, s)
			}
		}
	}
	if len(memberships) == 0 {
		return nil
	}
	if err := r.Actuate.For(r.intent(o, string(act))).Permit(ctx, "calling", o.lb); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(ctx, memberships)
	ctrl.LoggerFrom(ctx).Info("Called load balancer", "action", act, "memberships", memberships, "err", err)
	if err != nil {
		o.callErrors = join(o.callErrors, err)
		for _, s := range nodes {
			s.failed = err
		}
	}
	return nil
}

// record adds memberships to the NodeAttachment before they are drained, and removes them after they are restored. If
// it has nothing to write, it checks with a live read that the cache is current. Otherwise, a stale record could cause
// a drain or restore that is no longer wanted.
func (r *BalancerReconciler) record(ctx context.Context, o *round, driver balancer.Driver, s *nodeBalancer) error {
	before, acts, written := s.attachment.DeepCopy(), false, false
	for i, step := range s.steps {
		membership := recordOf(o.lb.Name, s.members[i].Membership)
		s.updateAddresses(driver, membership)
		switch {
		case step.Act == plan.Drain && !s.members[i].Taken:
			membership.DrainTime = metav1.NewTime(r.Clock.Now())
			s.attachment.Spec.Memberships = append(s.attachment.Spec.Memberships, membership)
			s.members[i].Taken, s.members[i].TakenAt = true, membership.DrainTime.Time
		case step.Act == plan.Drain && o.wait > 0: // Another party restored it, so it may have new connections.
			since := metav1.NewTime(r.Clock.Now())
			for j := range s.attachment.Spec.Memberships {
				if m := &s.attachment.Spec.Memberships[j]; m.Same(membership) {
					m.DrainTime, s.members[i].TakenAt, written = since, since.Time, true
				}
			}
		case step.Act == plan.HandOver:
			s.handOver(membership, s.members[i].Successor)
		case step.Act == plan.Release:
			s.logDropped(ctx, i)
			s.attachment.Spec.Memberships = slices.DeleteFunc(s.attachment.Spec.Memberships, membership.Same)
		case step.Act != "":
			acts = true
		}
	}
	if acts && !written && len(before.Spec.Memberships) == len(s.attachment.Spec.Memberships) {
		return unchanged(ctx, r.Live, before)
	}
	why := "Detach"
	if !s.out {
		why = "Attach"
	}
	return r.Actuate.For(r.intent(o, why)).PatchLocked(ctx, s.attachment, before)
}

// logDropped logs that a membership is removed from the record because it belongs to another machine.
func (s *nodeBalancer) logDropped(ctx context.Context, i int) {
	if absent(s.members[i]) {
		ctrl.LoggerFrom(ctx).Info("Dropping membership that is not the Node's any more", "Node", s.attachment.Spec.NodeName, "membership", s.members[i].Membership)
	}
}

// updateAddresses updates the address in the record of a membership, if the Node no longer has that address, and the
// membership has a current one.
func (s *nodeBalancer) updateAddresses(driver balancer.Driver, membership expv1.Membership) {
	elsewhere := func(m expv1.Membership) bool { return driver.Elsewhere(s.node(), membershipOf(m)) }
	for i := range s.attachment.Spec.Memberships {
		m := &s.attachment.Spec.Memberships[i]
		if with := *m; elsewhere(*m) && !elsewhere(membership) {
			if with.Address = membership.Address; with.Same(membership) {
				m.Address = membership.Address
			}
		}
	}
}

// unchanged returns a conflict if the NodeAttachment has changed since it was read.
func unchanged(ctx context.Context, api client.Reader, a *expv1.NodeAttachment) error {
	live := &expv1.NodeAttachment{}
	if err := api.Get(ctx, client.ObjectKeyFromObject(a), live); err != nil {
		return fmt.Errorf("reading NodeAttachment: %w", err)
	}
	if live.ResourceVersion != a.ResourceVersion {
		return apierrors.NewConflict(expv1.GroupVersion.WithResource("nodeattachments").GroupResource(), a.Name, errors.New("the cache is late"))
	}
	return nil
}

func (r *BalancerReconciler) intent(o *round, why string) actuate.Intent {
	return actuate.Intent{Kind: audit.NodePatch, Why: why, At: r.Clock.Now(), Cluster: client.ObjectKeyFromObject(o.cluster)}
}

// addFinalizer adds the finalizer, so that the LoadBalancer exists until all its memberships are restored, or until the
// Cluster is gone or being deleted: then nothing is restored.
func (r *BalancerReconciler) addFinalizer(ctx context.Context, lb *expv1.LoadBalancer) error {
	if !lb.DeletionTimestamp.IsZero() || controllerutil.ContainsFinalizer(lb, expv1.Finalizer) {
		return nil
	}
	before := lb.DeepCopy()
	controllerutil.AddFinalizer(lb, expv1.Finalizer)
	return r.Actuate.PatchLocked(ctx, lb, before)
}

// finalize removes the finalizer of a deleted LoadBalancer. It is called when no membership is drained or waits to be,
// or when the Cluster is gone or being deleted: then nothing is restored.
func (r *BalancerReconciler) finalize(ctx context.Context, o *round) error {
	if o.lb.DeletionTimestamp.IsZero() {
		return nil
	}
	return release(ctx, r.Actuate, o.lb)
}

// report writes the progress of each NodeAttachment and the condition Reachable of the LoadBalancer.
func (r *BalancerReconciler) report(ctx context.Context, o *round) error {
	var errs []error
	began := r.Clock.Now()
	for _, s := range o.nodes {
		if s.deferred = s.deferred || r.Clock.Since(began) >= maxWriteTime; s.deferred {
			continue
		}
		before := s.attachment.DeepCopy()
		if s.report(o); !r.throttle.due(client.ObjectKeyFromObject(o.lb), before, s.attachment, o.now) {
			continue
		}
		switch err := r.Actuate.PatchStatus(ctx, s.attachment, before); {
		case apierrors.IsInvalid(err): // Returning the error would delay all other Nodes by the back-off.
			ctrl.LoggerFrom(ctx).Error(err, "Reporting on Node", "Node", s.attachment.Spec.NodeName)
		case err != nil:
			errs = append(errs, err)
		}
	}
	if !o.called && o.failed == nil {
		return errors.Join(errs...) // No request was sent, so Reachable does not change.
	}
	before := o.lb.DeepCopy()
	c := metav1.Condition{Type: expv1.ReachableCondition, Status: metav1.ConditionTrue, Reason: expv1.CallSucceededReason}
	if err := join(o.failed, o.callErrors); err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, expv1.CallFailedReason, clip.Message(err.Error())
	}
	conditions.Set(o.lb, c)
	if err := r.Actuate.PatchStatus(ctx, o.lb, before); err != nil {
		return errors.Join(append(errs, err)...)
	}
	r.recordEvents(o, conditions.Get(before, expv1.ReachableCondition), c)
	return errors.Join(errs...)
}
