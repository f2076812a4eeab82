// SPDX-License-Identifier: Apache-2.0

// Package departure has the controllers of Machines that leave, from the request until the Machine is gone: which
// departures may start now, and is everything done before Cluster API drains and terminates the Machine?
//
// Reconciler, the planner, decides which departures of a Cluster start. HookReconciler runs the departure steps of a
// Machine at Cluster API's deletion hooks. OrphanReconciler counts the Machines that have lost their ScheduledMachine.
package departure

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// Reconciler is the departure planner. For each Cluster it decides which departures that are due may start now.
//
// It reads the Machines of the Cluster and their departure records, and calls departurecap.Decide. For each admitted
// departure it writes the admission to the record and deletes the Machine. To the other records it writes why the machine
// waits. Outside the exempt lane, no departure starts without an admission. It lists ScheduledMachines live only if a
// wipe is suspected.
type Reconciler struct {
	// Clock is the source of the time.
	Clock clock.PassiveClock
	// APIClock returns the trust in Clock. With nil, Clock is trusted.
	APIClock *apiclock.Clock
	// Actuate writes departure records and deletes Machines.
	Actuate *actuate.Actuator
	// Steps are the departure steps that run before a machine leaves. HookReconciler runs them.
	Steps leaving.Steps
	// Cap bounds how many machines may start to leave. Zero sets no limit.
	Cap departurecap.Fraction
	// Writes is how many writes of a Cluster are sent at once. Zero means one.
	Writes int
	// Lease is the lease duration of leader election: for so long another manager may still act as leader. Zero
	// means that there is no other manager.
	Lease time.Duration
	// WipeGuard enables the wipe quarantine: if nearly all machines of a Cluster or of all Clusters would leave at once,
	// they are held until that is confirmed.
	WipeGuard bool
	// Reader reads from the manager's cache: Clusters, Machines, MachineDeletionHooks, the objects of Steps, and
	// ScheduledMachines by wake.ClusterIndex. Live reads Clusters and ScheduledMachines from the API server. WatchFilter is
	// the value of Cluster API's watch label, empty for all objects.
	Reader, Live client.Reader
	WatchFilter  string
	// Recorder records Events on Clusters.
	Recorder events.EventRecorder

	mu    sync.Mutex
	fleet map[client.ObjectKey]*cluster
}

// A cluster is the planner's state of one Cluster between reconciles. Only the worker that reconciles the
// Cluster uses it, except counts, share and shown, which r.mu guards.
type cluster struct {
	// since is when the planner first ran for the Cluster, zero before.
	since time.Time
	// members are the machines of the last run, nil before the first.
	members map[types.UID]*member
	// starts are the starts of departures within departurecap.MaxWait. departed counts all starts of machines that had a
	// Node.
	starts   []time.Time
	departed int
	// lastWarning has the time of the latest Event by its reason.
	lastWarning map[string]time.Time

	// counts are the counts of the latest plan, with its admissions.
	counts departurecap.Counts
	// share is the latest share of the Cluster in the machines of the fleet.
	share rails.Share

	guard
	shown
}

// Reconcile plans the departures of one Cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	o, err := r.observe(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	c, now := r.cluster(key), r.Clock.Now()
	c.count(o, now)
	opens := r.checkRails(ctx, key, c, o)
	// A candidate without a written request takes part in the order, but is neither admitted nor answered.
	plan := r.plan(c, o.fleet).Only(func(name string) bool { return o.requested[name] != nil })
	plan.Held = append(plan.Held, o.paused...)
	deferred := false
	if !r.Actuate.Suppresses() {
		deferred, err = r.publish(ctx, key, c, o, plan)
		r.recount(c, o.fleet, plan, r.Clock.Now())
	}
	r.report(ctx, key, c, plan, deferred, now)
	next, ended := instant.Earliest(instant.Earliest(o.next, plan.Next), opens), r.Clock.Now()
	if err != nil {
		next = instant.Earliest(next, ended.Add(retry))
	}
	if ended.Sub(now) > longestRun {
		next = instant.Earliest(next, ended) // The plan is old.
	}
	if next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(ended), time.Millisecond)}, nil
}

// plan decides which departures of a Cluster start now, while other workers plan the other Clusters. Until recount sets
// the real time of a start, its time is in the future. Every plan counts such a start as now.
func (r *Reconciler) plan(c *cluster, f departurecap.Fleet) departurecap.Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.fleet {
		if other != c {
			f.Others = f.Others.Plus(other.counts, r.Cap, f.Now)
		}
	}
	p := departurecap.Decide(f, r.Cap)
	if c.counts = f.After(p, r.Cap, f.Now.Add(departurecap.MaxWait)); r.Actuate.Suppresses() {
		c.counts = f.After(departurecap.Plan{}, r.Cap, f.Now) // Nothing starts.
	}
	return p
}

// recount dates the starts of a plan after it was carried out. A start that failed counts until the next plan.
func (r *Reconciler) recount(c *cluster, f departurecap.Fleet, p departurecap.Plan, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.counts = f.After(p, r.Cap, at)
}

// retry is the delay after a record could not be written, or a Machine not be deleted.
const retry = time.Second
