// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// concurrency is how many requests are reconciled in parallel. Each costs a few reads.
const concurrency = 4

// A Reconciler reconciles RescheduleRequests on the leader.
type Reconciler struct {
	*eviction.Evictor

	reporter *reporter
	leader   *leader
}

// Reconcile handles one request while this replica holds the lease. A standby drops the request: a replica that gets
// the lease enqueues all requests.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	term := r.leader.current()
	if term == nil {
		return ctrl.Result{}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(term, cancel)() //nolint:contextcheck // The call ends with the term, too.
	done, err := r.ReconcileRequest(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if done.Request != nil {
		r.reporter.reconciled(done)
	}
	if done.Again.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(done.Again.Sub(r.Clock.Now()), time.Second)}, nil
}

// SetupWithManager adds the controller to mgr. It runs on every replica, and acts only on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("reschedulerequest").
		For(&evictionv1.RescheduleRequest{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(wake.Changes(r.drained))).
		Watches(&evictionv1.ReschedulePolicy{}, handler.EnqueueRequestsFromMapFunc(r.within)).
		Watches(&evictionv1.ClusterReschedulePolicy{}, handler.EnqueueRequestsFromMapFunc(r.within)).
		WatchesRawSource(source.Channel(r.leader.termStarted, handler.EnqueueRequestsFromMapFunc(r.within))).
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: concurrency, RateLimiter: wake.Backoff()}).
		Complete(r)
}

// drained is the part of a Node that a watch event must change: whether it is draining.
func (r *Reconciler) drained(node *corev1.Node) any { return eviction.Draining(node, r.Taints) }

// ofNode returns the requests for pods of a Node.
func (r *Reconciler) ofNode(ctx context.Context, node client.Object) []ctrl.Request {
	return r.list(ctx, func(q *evictionv1.RescheduleRequest) bool { return q.Spec.NodeName == node.GetName() })
}

// within returns the requests in the namespace of a policy, or all requests for a cluster-wide policy. The policy may
// have selected any of their pods.
func (r *Reconciler) within(ctx context.Context, policy client.Object) []ctrl.Request {
	return r.list(ctx, func(*evictionv1.RescheduleRequest) bool { return true }, client.InNamespace(policy.GetNamespace()))
}

func (r *Reconciler) list(ctx context.Context, wanted func(*evictionv1.RescheduleRequest) bool, opts ...client.ListOption) []ctrl.Request {
	list := &evictionv1.RescheduleRequestList{}
	if err := r.Cache.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing RescheduleRequests")
	}
	return wake.Requests(list.Items, wanted)
}
