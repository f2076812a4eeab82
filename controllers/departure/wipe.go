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

// A guard watches one Cluster for a wipe. The zero value has counted nothing.
type guard struct {
	wipe rails.Wipe
	// counted says that the baseline is set, and departures how many of the Cluster's it knows.
	counted    bool
	departures int
	// held says that unscheduled departures may not start, and again when the API server is
	// asked again.
	held  bool
	again time.Time
}

// looks is how many looks in a row have seen a wipe; one that failed holds machines, too.
func (g guard) looks() int {
	if !g.held {
		return 0
	}
	return max(1, g.wipe.Held)
}

// setBaseline counts, once, how many machines a Cluster has by what was reported last.
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

// orphans is how many Machines of a Cluster have none of these ScheduledMachines, and have not
// started to leave.
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

// active reports whether a ScheduledMachine of this manager has a machine that has run and is in the Cluster, by its status.
func (r *Reconciler) active(sm *v1alpha1.ScheduledMachine, key client.ObjectKey) bool {
	kept := conditions.IsTrue(sm, v1alpha1.DepartureGatedCondition) // Its Machine may be deleted, and its phase say so.
	return sm.Spec.ClusterName == key.Name && (sm.Status.Phase == v1alpha1.PhaseActive || kept) && sm.Status.NodeRef != nil &&
		(r.WatchFilter == "" || labels.HasWatchLabel(sm, r.WatchFilter))
}

// quarantine counts the machines that are to stay, and reports whether the others are held
// because they are nearly all, and when to look again.
func (r *Reconciler) quarantine(ctx context.Context, key client.ObjectKey, c *cluster, f departure.Fleet) (held bool, next time.Time) {
	left, departures := unscheduled(f), r.Roster.Departures(key)
	count := c.staying(f, left, departures)
	switch suspected := c.wipe.Suspects(count); {
	case suspected && len(left) > 0:
		if f.Now.Before(c.again) {
			return c.held, c.again
		}
		return r.look(ctx, key, c, left, count)
	case suspected: // Some are unknown, and nobody is to leave: there is nobody to hold.
		c.wipe = rails.Wipe{Baseline: c.wipe.Baseline - count.Left}
	default:
		c.wipe, _ = c.wipe.Judge(count)
	}
	c.departures, c.held, c.again = departures, false, time.Time{}
	return false, c.wipe.Next()
}

// grow counts the machines that join while the manager warms up.
func (r *Reconciler) grow(key client.ObjectKey, c *cluster, f departure.Fleet) {
	c.wipe = c.wipe.Grow(c.staying(f, unscheduled(f), r.Roster.Departures(key)))
}

// staying counts the machines that have run and are not to leave.
func (c *cluster) staying(f departure.Fleet, left []departure.Candidate, departures int) rails.Count {
	kept := f.Active - f.NeverRan
	for _, l := range left {
		if !l.NeverRan {
			kept--
		}
	}
	return rails.Count{At: f.Now, Kept: kept, Left: max(0, departures-c.departures)}
}

// look asks the API server itself whether nearly all machines are to leave. A list that fails,
// or that shows something else than what the reconcilers have seen, is no look: it confirms
// nothing, and resets nothing.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey, c *cluster, left []departure.Candidate, count rails.Count) (held bool, next time.Time) {
	c.held, c.again = true, count.At.Add(rails.Apart)
	unknown, unsure, err := r.compare(ctx, key, left)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines to confirm that nearly all are to leave")
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
		r.tell(ctx, key, c, count.At, v1alpha1.WipeQuarantinedEvent,
			"%d of %d machines are to leave at once. They stay until that has been confirmed, which takes 20 s: if it is a mistake, hold all departures now: kubectl 5spot -n %s hold-departures %s", len(left), len(left)+count.Kept, key.Namespace, key.Name)
	case rails.Confirmed:
		r.tell(ctx, key, c, count.At, v1alpha1.WipeConfirmedEvent, "%d of %d machines are to leave at once, which has been confirmed: they leave", len(left), len(left)+count.Kept)
	default:
	}
	return c.held, c.again
}

// unscheduled are the candidates that nobody announced.
func unscheduled(f departure.Fleet) (left []departure.Candidate) {
	for _, c := range f.Candidates {
		if c.Lane != departure.Scheduled {
			left = append(left, c)
		}
	}
	return left
}

// compare lists the ScheduledMachines of a Cluster live. It returns how many have machines of
// which the planner was not told, and of how many of those that are to leave the list shows
// another spec than their reconcilers saw, or none.
func (r *Reconciler) compare(ctx context.Context, key client.ObjectKey, left []departure.Candidate) (unknown, unsure int, err error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Live.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return 0, 0, err
	}
	same := map[string]bool{}
	for i := range list.Items {
		sm := &list.Items[i]
		name := client.ObjectKeyFromObject(sm)
		told, known := r.Roster.Told(name)
		same[name.String()] = known && told.Generation == sm.Generation
		if !known && r.active(sm, key) {
			unknown++
		}
	}
	for _, c := range left {
		if !same[c.Name] && !roster.IsOrphan(c.Name) { // No edit takes the deletion of a Machine back.
			unsure++
		}
	}
	return unknown, unsure, nil
}
