// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// The functions under test.
var (
	Judge                   = judge
	ScheduledMachineChanges = scheduledMachineChanges
)

type noNodes struct{}

func (noNodes) Start(context.Context, client.ObjectKey) error { return nil }

// WithoutWatches returns r for tests that call Reconcile themselves.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes = noNodes{}
	r.RateLimiter()
	return r
}

// RateLimiter is that of the controller.
func (r *Reconciler) RateLimiter() workqueue.TypedRateLimiter[ctrl.Request] {
	r.fresh.Longest, r.patience = longestRest, newPatience(wake.Backoff())
	return r.patience
}

// RetriedAfter is how long the next try of an object that has failed waits.
func (r *Reconciler) RetriedAfter(req ctrl.Request) time.Duration { return r.patience.When(req) }

// The metrics, and what starts and removes the series of a Cluster.
var (
	Reclaims         = reclaims
	Latency          = latency
	ScreenedRequests = screenedRequests

	StartClusterSeries  = startClusterSeries
	RemoveClusterSeries = removeClusterSeries
)

// Waits is waits.
type Waits = waits

// Who waits for the next try of an object.
const (
	NobodyWaits = nobodyWaits
	RestWaits   = restWaits
	OwnerWaits  = ownerWaits
)

// Note tells a RateLimiter who waits.
func Note(limiter workqueue.TypedRateLimiter[ctrl.Request], req ctrl.Request, who Waits) {
	limiter.(patience).note(req, who)
}
