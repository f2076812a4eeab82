// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// lead returns the state of the warm-up. It counts from the first planner run. The caches are synced by then.
func (r *Reconciler) lead(now time.Time, clockSampled bool) rails.Lead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		r.since = now
	}
	return rails.Lead{Since: r.since, Lease: r.Lease, Told: clockSampled}
}

// sampleClock makes a request to the API server, so that APIClock gets a sample of its time. A manager without leader
// election might make no other request.
func (r *Reconciler) sampleClock(ctx context.Context, key client.ObjectKey) {
	if err := r.Live.Get(ctx, key, &clusterv1.Cluster{}); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading the time of the API server")
	}
}
