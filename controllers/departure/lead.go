// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// metered reports whether anybody may have to wait for others.
func (r *Reconciler) metered() bool { return r.WipeGuard || r.Limits != departure.Limits{} }

// lead is what this manager knows since it leads. It begins with the first machine that the
// planner is told of: by then the caches have been filled, from which the machine was read.
func (r *Reconciler) lead(now time.Time, counted, told bool) rails.Lead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		r.since = now
	}
	return rails.Lead{Since: r.since, Lease: r.Lease, Synced: true, Told: told, Counted: counted}
}

// listen has the API server tell its time, for machines that wait for it: a manager that has
// no lease may have nothing else to ask.
func (r *Reconciler) listen(ctx context.Context, key client.ObjectKey) {
	if err := r.Live.Get(ctx, key, &clusterv1.Cluster{}); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Asking the API server for its time")
	}
}
