// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// sampleServerTime makes one live read, whose response carries the API server's time. It limits the rate for all
// objects together. A manager without leader election may have no other request that samples the time.
func (r *Reconciler) sampleServerTime(ctx context.Context, sm *v1alpha1.ScheduledMachine, now time.Time) {
	if !r.listened.due(now) {
		return
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(sm), &v1alpha1.ScheduledMachine{}); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Asking the API server for its time")
	}
}

// sampleLimit is when the API server's time was last requested. A lost value causes one more read.
type sampleLimit struct {
	mu sync.Mutex
	at time.Time
}

// due reports whether a read is due, and records that it is made.
func (l *sampleLimit) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Sub(l.at); since >= 0 && since < rails.Apart {
		return false
	}
	l.at = now
	return true
}
