// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// sampleServerTime makes one live read, whose response carries the API server's time. It limits the rate for all
// objects together. A manager without leader election may have no other request that samples the time.
func (r *Reconciler) sampleServerTime(ctx context.Context, sm *v1alpha1.ScheduledMachine, now time.Time) {
	last := r.sampled.Load()
	if since := now.Sub(time.Unix(0, last)); since >= 0 && since < rails.Apart || !r.sampled.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(sm), &v1alpha1.ScheduledMachine{}); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Asking the API server for its time")
	}
}
