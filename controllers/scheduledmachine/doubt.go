// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// doubt is what is left of a decision while our clock and the API server's differ: nobody
// joins by what our clock says, and no wait of a departure ends. Departures that have not
// started are held by the planner, which doubts the same clock.
func (r *Reconciler) doubt(ctx context.Context, s *scope, d lifecycle.Decision, now time.Time) lifecycle.Decision {
	if r.APIClock.Trust() != rails.Suspect {
		return d
	}
	doubted := lifecycle.Doubted(d, s.facts(now))
	if doubted.Action != d.Action {
		r.listen(ctx, s.scheduled, now)
		doubted.Recheck = departure.Sooner(doubted.Recheck, now.Add(rails.Apart))
	}
	return doubted
}

// listen has the API server tell its time, once for all who wait for that: a manager that has
// no lease may have nothing else to ask.
func (r *Reconciler) listen(ctx context.Context, sm *v1alpha1.ScheduledMachine, now time.Time) {
	if !r.listened.due(now) {
		return
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(sm), &v1alpha1.ScheduledMachine{}); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Asking the API server for its time")
	}
}

// listened knows when the API server was last asked for its time. It may be lost.
type listened struct {
	mu sync.Mutex
	at time.Time
}

// due reports whether it is time to ask again, and notes that somebody does.
func (l *listened) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Sub(l.at); since >= 0 && since < rails.Apart {
		return false
	}
	l.at = now
	return true
}
