// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// A guard is the wipe quarantine of one Cluster. The zero value has no baseline.
type guard struct {
	wipe rails.Wipe
	// counted reports that the baseline is set. departures is the value of cluster.departed when the baseline last
	// changed.
	counted    bool
	departures int
	// held reports that unscheduled departures are held. again is when the next live check is due.
	held  bool
	again time.Time
}

// checks returns how many checks in a row saw a wipe, at least 1 while machines are held. A failed check holds
// machines, too.
func (g guard) checks() int {
	if !g.held {
		return 0
	}
	return max(1, g.wipe.Held)
}

// setBaseline counts the machines of a Cluster once: those whose status shows a Node, and orphans.
func (r *Reconciler) setBaseline(key client.ObjectKey, c *cluster, o *observation) {
	if c.counted {
		return
	}
	if r.WipeGuard {
		for _, sm := range o.scheduled {
			if r.active(sm, key) {
				c.wipe.Baseline++
			}
		}
		for _, m := range o.machines {
			if m.scheduled == nil && m.Status.NodeRef.IsDefined() && children.LeavingSince(m.Machine, nil, o.fleet.Now).IsZero() {
				c.wipe.Baseline++
			}
		}
	}
	c.counted, c.departures = true, c.departed
}

// active reports whether this manager serves the ScheduledMachine, and its status shows a machine that has a
// Node and is in the Cluster.
func (r *Reconciler) active(sm *v1alpha1.ScheduledMachine, key client.ObjectKey) bool {
	// A gated departure keeps the machine. Its phase may already show that its Machine is deleted.
	kept := conditions.IsTrue(sm, v1alpha1.DepartureGatedCondition)
	return sm.Spec.ClusterName == key.Name && (sm.Status.Phase == v1alpha1.PhaseActive || kept) && sm.Status.NodeRef != nil &&
		workload.MatchesFilter(r.WatchFilter, sm)
}

// quarantine counts the machines that would stay. held reports whether unscheduled departures are held because
// nearly all machines would leave. next is when to check again.
func (r *Reconciler) quarantine(ctx context.Context, key client.ObjectKey, c *cluster, o *observation) (held bool, next time.Time) {
	f := o.fleet
	left := unscheduled(f)
	count := c.staying(f, left)
	if others := r.shares(c, count); len(left) > 0 {
		count.Others = others // A Cluster without candidates holds nothing.
	}
	switch suspected := c.wipe.Suspects(count); {
	case suspected && len(left) > 0:
		if f.Now.Before(c.again) {
			return c.held, c.again
		}
		return r.checkLive(ctx, key, c, o, left, count)
	// Some departures are not in the baseline yet, and no candidate exists: there is nothing to hold.
	case suspected:
		c.wipe = rails.Wipe{Baseline: c.wipe.Baseline - count.Left}
	default:
		c.wipe, _ = c.wipe.Judge(count)
	}
	c.departures, c.held, c.again = c.departed, false, time.Time{}
	return false, c.wipe.Next()
}

// grow adds machines that join during the warm-up to the baseline.
func (r *Reconciler) grow(c *cluster, f departurecap.Fleet) {
	count := c.staying(f, unscheduled(f))
	c.wipe = c.wipe.Grow(count)
	r.shares(c, count)
}

// shares stores the share of a Cluster, and returns the sum of the other Clusters' shares.
func (r *Reconciler) shares(c *cluster, count rails.Count) (others rails.Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.share = c.wipe.Share(count)
	for _, other := range r.fleet {
		if other != c {
			others = others.Plus(other.share)
		}
	}
	return others
}

// staying counts the machines that have had a Node and are not due to leave in the unscheduled lane.
func (c *cluster) staying(f departurecap.Fleet, left []departurecap.Candidate) rails.Count {
	kept := f.Active - f.NeverRan
	for _, l := range left {
		if !l.NeverRan {
			kept--
		}
	}
	return rails.Count{At: f.Now, Kept: kept, Left: max(0, c.departed-c.departures)}
}

// checkLive confirms a suspected wipe with a live list. If the list fails, or if it differs from the specs that the
// reconcilers read so that the result would change, the machines stay held. Such a check neither confirms nor resets.
func (r *Reconciler) checkLive(ctx context.Context, key client.ObjectKey, c *cluster, o *observation, left []departurecap.Candidate, count rails.Count) (held bool, next time.Time) {
	unknown, unsure, err := r.compare(ctx, key, o, left)
	c.held, c.again = true, r.Clock.Now().Add(rails.Apart) // After a slow list, the next run writes, and does not list.
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines to confirm that nearly all would leave")
		return c.held, c.again
	}
	count.Kept += unknown
	sure := count
	sure.Kept += unsure
	if c.wipe.Suspects(count) != c.wipe.Suspects(sure) {
		return c.held, c.again
	}
	wiped := c.wiped(count, len(left))
	var verdict rails.WipeVerdict
	c.wipe, verdict = c.wipe.Judge(count)
	c.departures += count.Left
	switch c.held = verdict == rails.Quarantined; verdict {
	case rails.Quarantined:
		r.recordWarning(ctx, key, c, count.At, v1alpha1.WipeQuarantinedEvent,
			"%s would leave at once. They stay until three checks confirm that, 20s. If it is a mistake, hold all departures now: kubectl 5spot -n %s hold-departures %s", wiped, key.Namespace, key.Name)
	case rails.Confirmed:
		r.recordWarning(ctx, key, c, count.At, v1alpha1.WipeConfirmedEvent, "%s leave: three checks confirmed it", wiped)
	default:
	}
	return c.held, c.again
}

// wiped returns how many machines of the Cluster would leave, or of all Clusters if only they are nearly all.
func (c *cluster) wiped(count rails.Count, left int) string {
	all := c.wipe.Share(count).Plus(count.Others)
	count.Others = rails.Share{}
	if c.wipe.Suspects(count) {
		return fmt.Sprintf("%d of %d machines", left, left+count.Kept)
	}
	return fmt.Sprintf("%d of %d machines of all Clusters", all.Baseline-all.Kept, all.Baseline)
}

// unscheduled returns the candidates outside the lane Scheduled.
func unscheduled(f departurecap.Fleet) (left []departurecap.Candidate) {
	for _, c := range f.Candidates {
		if c.Lane != departurecap.Scheduled {
			left = append(left, c)
		}
	}
	return left
}

// compare lists the ScheduledMachines of a Cluster live. unknown is the number of active machines that the cache does
// not show. unsure is the number of candidates whose spec differs between the list and the cache, or that are missing
// from the list.
func (r *Reconciler) compare(ctx context.Context, key client.ObjectKey, o *observation, left []departurecap.Candidate) (unknown, unsure int, err error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Live.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return 0, 0, err
	}
	generations, has := map[types.UID]int64{}, map[types.UID]bool{}
	for _, m := range o.machines {
		if m.scheduled != nil {
			has[m.scheduled.UID] = true
		}
	}
	for i := range list.Items {
		sm := &list.Items[i]
		generations[sm.UID] = sm.Generation
		if !has[sm.UID] && r.active(sm, key) {
			unknown++
		}
	}
	for _, c := range left {
		sm := o.requested[c.Name].scheduled
		// No edit can undo the deletion of an orphan.
		if sm != nil && generations[sm.UID] != sm.Generation {
			unsure++
		}
	}
	return unknown, unsure, nil
}
