// SPDX-License-Identifier: Apache-2.0

// Package departure answers one question: which voluntary departures start now? It is the
// planner, and the only code that lets one start. The reconcilers of ScheduledMachines tell
// it, by the roster, which machines are to leave and when; it tells them which may. It
// writes nothing: what it lets start is recorded on the Machine by who deletes it.
package departure

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// Reconciler plans the departures of Clusters.
type Reconciler struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// APIClock says whether Clock can be trusted; nil trusts it.
	APIClock *apiclock.Clock
	// Roster has the machines.
	Roster *roster.Roster
	// Limits bound how many may leave; the zero value does not.
	Limits departure.Limits
	// Lease is how long another manager may believe to lead that cannot renew its lease; zero
	// is that there is no other.
	Lease time.Duration
	// WipeGuard has nearly all machines of a Cluster stay that are to leave at once, until that
	// has been confirmed.
	WipeGuard bool
	// Reader reads Clusters and ScheduledMachines from the manager's cache, these by
	// ClusterIndex, and Live reads them from the API server. WatchFilter is the value of
	// Cluster API's watch label, empty for everything.
	Reader, Live client.Reader
	ClusterIndex string
	WatchFilter  string
	// Recorder records events on Clusters.
	Recorder events.EventRecorder

	mu sync.Mutex
	// since is since when this manager leads, as far as the planner knows.
	since time.Time
	fleet map[client.ObjectKey]*cluster
}

// A cluster is what the planner keeps in mind of one Cluster from one look to the next. Only
// the worker that has the Cluster uses it, but for what it shows.
type cluster struct {
	// deferred are the candidates that were counted as deferred by the cap, and since when
	// each has been one.
	deferred map[string]time.Time
	// admitted are the candidates that were counted as let start, and since when each has been one.
	admitted map[string]time.Time
	// told is when people were last told of something, by its reason.
	told map[string]time.Time

	guard
	shown
}

// Reconcile plans the departures of one Cluster. It reads the roster, which enqueues the Cluster on
// every change, and the API server only if a wipe is suspected.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	c := r.cluster(key)
	now := r.Clock.Now()
	fleet, next := r.Roster.Fleet(key, now)
	gates, opens, err := r.gates(ctx, key, c, fleet)
	if err != nil {
		return ctrl.Result{}, err
	}
	fleet.Gates = gates
	plan := departure.Decide(fleet, r.Limits)
	r.Roster.Publish(key, plan, now)
	r.report(ctx, key, c, plan, now)
	next = departure.Sooner(departure.Sooner(next, plan.Next), opens)
	if next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(now), time.Millisecond)}, nil
}

// gates are those that are closed, and when to look at them again.
func (r *Reconciler) gates(ctx context.Context, key client.ObjectKey, c *cluster, f departure.Fleet) (g departure.Gates, next time.Time, err error) {
	if g.Hold, err = r.hold(ctx, key); err != nil || !r.metered() {
		return g, next, err
	}
	if err := r.setBaseline(ctx, key, c); err != nil {
		return g, next, fmt.Errorf("counting machines: %w", err)
	}
	trust := r.APIClock.Trust()
	g.ClockSuspect = trust == rails.Suspect
	if g.WarmUp, next = r.lead(f.Now, c.counted, trust != rails.Untold).WarmUp(f.Now); g.WarmUp != departure.Warm {
		r.grow(key, c, f)
	}
	switch {
	case g.ClockSuspect && len(f.Candidates) > 0:
		r.listen(ctx, key)
		next = f.Now.Add(rails.Apart)
	case g.WarmUp == departure.Warm && r.WipeGuard:
		g.WipeQuarantine, next = r.quarantine(ctx, key, c, f)
	case len(f.Candidates) == 0:
		next = time.Time{} // Nobody waits for the end of the warm-up.
	}
	return g, next, nil
}
