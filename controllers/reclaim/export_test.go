// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The functions under test.
var (
	Classify                = classify
	ScheduledMachineChanges = scheduledMachineChanges
)

// NodesWatch is the name of the watch on Nodes.
const NodesWatch = "reclaim-nodes"

// WithoutWatches prepares r for tests that call Reconcile. Their fake cluster cache has NodesWatch already.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = NodesWatch, r.ClusterCache
	r.RateLimiter()
	return r
}

// RateLimiter sets and returns the rate limiter of the controller.
func (r *Reconciler) RateLimiter() workqueue.TypedRateLimiter[ctrl.Request] {
	return r.setBackoffs()
}

// RetriedAfter returns the back-off of an object that has failed.
func (r *Reconciler) RetriedAfter(req ctrl.Request) time.Duration { return r.backoff.When(req) }

// The metrics, and the functions that start and remove the series of a Cluster.
var (
	Reclaims         = reclaims
	Latency          = latency
	ScreenedRequests = screenedRequests

	StartClusterSeries  = startClusterSeries
	RemoveClusterSeries = removeClusterSeries
)

// RetryUrgency is retryUrgency.
type RetryUrgency = retryUrgency

// The urgencies of an object's next try.
const (
	NotUrgent   = notUrgent
	NodeUrgent  = nodeUrgent
	OwnerUrgent = ownerUrgent
)

// Note records the urgency in a RateLimiter.
func Note(limiter workqueue.TypedRateLimiter[ctrl.Request], req ctrl.Request, who RetryUrgency) {
	limiter.(*reclaimBackoff).urgency.Store(req, who)
}
