// SPDX-License-Identifier: Apache-2.0

// Package departure is the departure planner. For each Cluster it decides which departures that are due may
// start now.
//
// It reads the machines of the Cluster from the Roster, calls departure.Decide, and publishes the plan to the Roster.
// Outside the exempt lane, no departure starts without its admission. It lists ScheduledMachines live only if the
// Roster suggests a wipe. It writes only Events, metrics and logs. The reconciler that deletes the Machine writes the
// departure record.
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
	// Clock is the source of the time.
	Clock clock.PassiveClock
	// APIClock returns the trust in Clock. With nil, Clock is trusted.
	APIClock *apiclock.Clock
	// Roster is the list of machines.
	Roster *roster.Roster
	// Limits bound how many machines may leave. The zero value sets no limit.
	Limits departure.Limits
	// Lease is the lease duration of leader election: for so long another manager may still act as leader. Zero
	// means that there is no other manager.
	Lease time.Duration
	// WipeGuard enables the wipe quarantine: if nearly all machines of a Cluster would leave at once, they are
	// held until that is confirmed.
	WipeGuard bool
	// Reader reads from the manager's cache: Clusters, Machines, and ScheduledMachines by ClusterIndex. Live
	// reads Clusters and ScheduledMachines from the API server. WatchFilter is the value of Cluster API's watch
	// label, empty for all objects.
	Reader, Live client.Reader
	ClusterIndex string
	WatchFilter  string
	// Recorder records Events on Clusters.
	Recorder events.EventRecorder

	mu sync.Mutex
	// since is when the planner of this manager first ran, zero before.
	since time.Time
	fleet map[client.ObjectKey]*cluster
}

// A cluster is the planner's state of one Cluster between reconciles. Only the worker that reconciles the
// Cluster uses it, except shown, which r.mu guards.
type cluster struct {
	// deferred has the candidates that were counted as deferred by the cap. The value is their Since.
	deferred map[string]time.Time
	// admitted has the candidates that were counted as admitted. The value is their Since.
	admitted map[string]time.Time
	// lastWarning has the time of the latest Event by its reason.
	lastWarning map[string]time.Time

	guard
	shown
}

// Reconcile plans the departures of one Cluster. It reads the Roster, which enqueues the Cluster on every
// change. It lists live only if a wipe is suspected.
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
	next = departure.Earliest(departure.Earliest(next, plan.Next), opens)
	if next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(now), time.Millisecond)}, nil
}

// gates returns the gates that are closed, and when to check them again.
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
		r.sampleClock(ctx, key)
		next = f.Now.Add(rails.Apart)
	case g.WarmUp == departure.Warm && r.WipeGuard:
		g.WipeQuarantine, next = r.quarantine(ctx, key, c, f)
	case len(f.Candidates) == 0:
		next = time.Time{} // No candidate waits for the end of the warm-up.
	}
	return g, next, nil
}
