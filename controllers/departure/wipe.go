// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// A guard is the wipe quarantine of one Cluster. The zero value has no baseline.
type guard struct {
	wipe rails.Wipe
	// counted reports that the baseline is set. departures is the number of departures from the Roster that the
	// baseline already excludes.
	counted    bool
	departures int
	// held reports that unscheduled departures are held. again is when the next live check is due.
	held  bool
	again time.Time
}

// looks returns how many checks in a row saw a wipe, at least 1 while machines are held. A failed check holds
// machines, too.
func (g guard) looks() int {
	if !g.held {
		return 0
	}
	return max(1, g.wipe.Held)
}

// setBaseline counts the machines of a Cluster once, from the status of its ScheduledMachines.
func (r *Reconciler) setBaseline(ctx context.Context, key client.ObjectKey, c *cluster) error {
	if c.counted {
		return nil
	}
	if r.WipeGuard {
		list := &v1alpha1.ScheduledMachineList{}
		if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{r.ClusterIndex: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range list.Items {
			if r.active(&list.Items[i], key) {
				c.wipe.Baseline++
			}
		}
		orphans, err := r.orphans(ctx, key, list)
		if err != nil {
			return err
		}
		c.wipe.Baseline += orphans
	}
	c.counted, c.departures = true, r.Roster.Departures(key)
	return nil
}

// orphans returns how many Machines of a Cluster have had a Node, have none of these ScheduledMachines, and
// have not started to leave.
func (r *Reconciler) orphans(ctx context.Context, key client.ObjectKey, of *v1alpha1.ScheduledMachineList) (n int, err error) {
	uids := map[string]types.UID{}
	for i := range of.Items {
		uids[of.Items[i].Name] = of.Items[i].UID
	}
	list := &clusterv1.MachineList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	now := r.Clock.Now()
	for i := range list.Items {
		m := &list.Items[i]
		if m.Spec.ClusterName == key.Name && m.Status.NodeRef.IsDefined() && children.Orphaned(m, uids[children.ParentOf(m)]) && children.LeavingSince(m, nil, now).IsZero() {
			n++
		}
	}
	return n, nil
}

// active reports whether this manager serves the ScheduledMachine, and its status shows a machine that has a
// Node and is in the Cluster.
func (r *Reconciler) active(sm *v1alpha1.ScheduledMachine, key client.ObjectKey) bool {
	// A gated departure keeps the machine. Its phase may already show that its Machine is deleted.
	kept := conditions.IsTrue(sm, v1alpha1.DepartureGatedCondition)
	return sm.Spec.ClusterName == key.Name && (sm.Status.Phase == v1alpha1.PhaseActive || kept) && sm.Status.NodeRef != nil &&
		(r.WatchFilter == "" || labels.HasWatchLabel(sm, r.WatchFilter))
}

// quarantine counts the machines that would stay. held reports whether unscheduled departures are held because
// nearly all machines would leave. next is when to check again.
func (r *Reconciler) quarantine(ctx context.Context, key client.ObjectKey, c *cluster, f departure.Fleet) (held bool, next time.Time) {
	left, departures := unscheduled(f), r.Roster.Departures(key)
	count := c.staying(f, left, departures)
	switch suspected := c.wipe.Suspects(count); {
	case suspected && len(left) > 0:
		if f.Now.Before(c.again) {
			return c.held, c.again
		}
		return r.checkLive(ctx, key, c, left, count)
	// Some departures are not in the baseline yet, and no candidate exists: there is nothing to hold.
	case suspected:
		c.wipe = rails.Wipe{Baseline: c.wipe.Baseline - count.Left}
	default:
		c.wipe, _ = c.wipe.Judge(count)
	}
	c.departures, c.held, c.again = departures, false, time.Time{}
	return false, c.wipe.Next()
}

// grow adds machines that join during the warm-up to the baseline.
func (r *Reconciler) grow(key client.ObjectKey, c *cluster, f departure.Fleet) {
	c.wipe = c.wipe.Grow(c.staying(f, unscheduled(f), r.Roster.Departures(key)))
}

// staying counts the machines that have had a Node and are not due to leave in the unscheduled lane.
func (c *cluster) staying(f departure.Fleet, left []departure.Candidate, departures int) rails.Count {
	kept := f.Active - f.NeverRan
	for _, l := range left {
		if !l.NeverRan {
			kept--
		}
	}
	return rails.Count{At: f.Now, Kept: kept, Left: max(0, departures-c.departures)}
}

// checkLive confirms a suspected wipe with a live list. If the list fails, or if it differs from the specs that the
// reconcilers read so that the result would change, the machines stay held. Such a check neither confirms nor resets.
func (r *Reconciler) checkLive(ctx context.Context, key client.ObjectKey, c *cluster, left []departure.Candidate, count rails.Count) (held bool, next time.Time) {
	c.held, c.again = true, count.At.Add(rails.Apart)
	unknown, unsure, err := r.compare(ctx, key, left)
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
	var verdict rails.WipeVerdict
	c.wipe, verdict = c.wipe.Judge(count)
	c.departures += count.Left
	switch c.held = verdict == rails.Quarantined; verdict {
	case rails.Quarantined:
		r.recordWarning(ctx, key, c, count.At, v1alpha1.WipeQuarantinedEvent,
			"%d of %d machines would leave at once. They stay until three checks confirm that, 20s. If it is a mistake, hold all departures now: kubectl 5spot -n %s hold-departures %s", len(left), len(left)+count.Kept, key.Namespace, key.Name)
	case rails.Confirmed:
		r.recordWarning(ctx, key, c, count.At, v1alpha1.WipeConfirmedEvent, "%d of %d machines leave: three checks confirmed it", len(left), len(left)+count.Kept)
	default:
	}
	return c.held, c.again
}

// unscheduled returns the candidates outside the lane Scheduled.
func unscheduled(f departure.Fleet) (left []departure.Candidate) {
	for _, c := range f.Candidates {
		if c.Lane != departure.Scheduled {
			left = append(left, c)
		}
	}
	return left
}

// compare lists the ScheduledMachines of a Cluster live. unknown is the number of active machines that are not
// in the Roster. unsure is the number of candidates whose spec differs between the list and the read of the
// reconciler, or that are missing from the list.
func (r *Reconciler) compare(ctx context.Context, key client.ObjectKey, left []departure.Candidate) (unknown, unsure int, err error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Live.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return 0, 0, err
	}
	same := map[string]bool{}
	for i := range list.Items {
		sm := &list.Items[i]
		name := client.ObjectKeyFromObject(sm)
		told, known := r.Roster.LastReport(name)
		same[name.String()] = known && told.Generation == sm.Generation
		if !known && r.active(sm, key) {
			unknown++
		}
	}
	for _, c := range left {
		// No edit can undo the deletion of a Machine.
		if !same[c.Name] && !roster.IsOrphan(c.Name) {
			unsure++
		}
	}
	return unknown, unsure, nil
}
