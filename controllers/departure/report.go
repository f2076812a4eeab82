// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
)

// quiet is the minimum time between two Events with the same reason on a Cluster.
const quiet = time.Minute

// report updates metrics and logs after a plan, and records an Event if a candidate is deferred for the first
// time.
func (r *Reconciler) report(ctx context.Context, key client.ObjectKey, c *cluster, p departurecap.Plan, deferred bool, now time.Time) {
	r.mu.Lock()
	was := c.shown
	c.shown = shown{oldest: oldest(p.Deferred), quarantined: c.checks(), guarded: r.WipeGuard, onHold: p.HeldFor(v1alpha1.DeparturesHeldReason)}
	if len(c.members)+len(c.starts) == 0 {
		delete(r.fleet, key)
	}
	r.mu.Unlock()
	logChanges(ctx, key, was, c.shown, p)
	if deferred {
		first := p.Deferred[0]
		r.recordWarning(ctx, key, c, now, v1alpha1.DepartureCapEngagedEvent, "Departures deferred: at most %d of %d start to leave within %s. To see the machines that wait: kubectl 5spot -n %s rails --cluster %s. To stop all departures: kubectl 5spot -n %s hold-departures %s",
			first.Cap, first.Of, departurecap.Window, key.Namespace, key.Name, key.Namespace, key.Name)
	}
}

// logChanges logs when a rail starts and stops to hold machines of a Cluster. logr has no level for warnings,
// so the key "level" marks these lines.
func logChanges(ctx context.Context, key client.ObjectKey, was, is shown, p departurecap.Plan) {
	log := ctrl.LoggerFrom(ctx).WithValues("Cluster", key, "level", "warn")
	switch {
	case was.oldest.IsZero() && !is.oldest.IsZero():
		log.Info("Departure cap defers departures", "deferred", len(p.Deferred), "cap", p.Deferred[0].Cap, "machines", p.Deferred[0].Of)
	case !was.oldest.IsZero() && is.oldest.IsZero():
		log.Info("Departure cap no longer defers departures", "machines", p.Members)
	}
	switch {
	case was.quarantined == 0 && is.quarantined > 0:
		log.Info("Wipe quarantine holds departures", "held", len(p.Held), "machines", p.Members)
	case was.quarantined > 0 && is.quarantined == 0:
		log.Info("Wipe quarantine no longer holds departures", "machines", p.Members)
	}
	switch {
	case was.onHold == 0 && is.onHold > 0:
		log.Info("A person holds departures", "held", is.onHold, "because", p.Held[0].Message, "machines", p.Members)
	case was.onHold > 0 && is.onHold == 0:
		log.Info("A person no longer holds departures", "machines", p.Members)
	}
}

// cluster returns the state of a Cluster and creates it if it does not exist.
func (r *Reconciler) cluster(key client.ObjectKey) *cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.fleet[key]
	if c == nil {
		c = &cluster{lastWarning: map[string]time.Time{}}
		if r.fleet == nil {
			r.fleet = map[client.ObjectKey]*cluster{}
		}
		r.fleet[key] = c
	}
	return c
}

// oldest returns when the longest waiting candidate became due, zero if none waits.
func oldest(waiting []departurecap.Waiting) time.Time {
	var at time.Time
	for _, w := range waiting {
		at = instant.Earliest(at, w.Since)
	}
	return at
}

// recordWarning records a Warning on a Cluster, at most once per quiet for each reason.
func (r *Reconciler) recordWarning(ctx context.Context, key client.ObjectKey, c *cluster, now time.Time, reason, note string, args ...any) {
	if last, warned := c.lastWarning[reason]; warned && now.Sub(last).Abs() < quiet {
		return
	}
	owner := &clusterv1.Cluster{}
	if err := r.Reader.Get(ctx, key, owner); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Reading Cluster to record an Event", "reason", reason)
		}
		return
	}
	c.lastWarning[reason] = now
	r.Recorder.Eventf(owner, nil, corev1.EventTypeWarning, reason, "PlanDepartures", note, args...)
}
