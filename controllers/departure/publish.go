// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/extensions"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// publish carries out a plan: it starts the admitted departures, tries failed deletions again, ends expired admissions,
// and writes why the other candidates wait. It writes only what changes. deferred reports that the cap defers a
// candidate that it did not defer before. A Machine that has changed since it was read is a conflict, which
// Reconcile tries again: a change of its status does not enqueue the Cluster. After longestRun it stops, and Reconcile
// plans again.
func (r *Reconciler) publish(ctx context.Context, key client.ObjectKey, c *cluster, o *observation, p departurecap.Plan) (deferred bool, err error) {
	var writes []func() error
	for _, m := range o.admitted {
		writes = append(writes, func() error { return r.delete(ctx, c, m, m.DeepCopy()) })
	}
	for _, a := range p.Admitted {
		writes = append(writes, func() error { return r.admit(ctx, key, c, o.requested[a.Name], a, o.fleet.Now) })
	}
	for _, m := range o.expired {
		writes = append(writes, func() error {
			e := c.members[m.UID]
			e.waiting = v1alpha1.DepartureWaiting{}
			_, err := r.set(ctx, m.DeepCopy(), expire(m, e.failure), children.Withdraw)
			return err
		})
	}
	err = r.parallel(ctx, o, writes)
	deferred, unanswered := r.answerAll(ctx, key, c, o, p)
	return deferred, errors.Join(err, unanswered)
}

// answerAll writes why machines wait. After an error other than a conflict, it tries a machine again after one Window: no
// departure depends on an answer.
func (r *Reconciler) answerAll(ctx context.Context, key client.ObjectKey, c *cluster, o *observation, p departurecap.Plan) (deferred bool, err error) {
	var mu sync.Mutex // It guards deferred and o.next.
	var writes []func() error
	for _, w := range slices.Concat(p.Held, p.Deferred) {
		m := o.requested[w.Name]
		writes = append(writes, func() error {
			first, err := r.answer(ctx, key, c, m, w)
			mu.Lock()
			defer mu.Unlock()
			deferred = deferred || first
			if err == nil || apierrors.IsConflict(err) {
				return err
			}
			c.members[m.UID].unanswered = r.Clock.Now()
			o.next = instant.Earliest(o.next, r.Clock.Now().Add(departurecap.Window))
			return nil
		})
	}
	err = r.parallel(ctx, o, writes)
	return deferred, err
}

// parallel sends the writes of a plan, up to r.Writes at once. After longestRun it sends no more.
func (r *Reconciler) parallel(ctx context.Context, o *observation, writes []func() error) error {
	errs := make([]error, len(writes))
	workqueue.ParallelizeUntil(ctx, max(1, r.Writes), len(writes), func(i int) {
		if r.Clock.Since(o.fleet.Now) <= longestRun {
			errs[i] = writes[i]()
		}
	})
	return errors.Join(errs...)
}

// longestRun bounds the time from a plan to its last write. Slow writes about machines that wait must not delay the next
// admission.
const longestRun = departurecap.Window / 2

// answer writes why a machine waits. It writes nothing if the record has the answer, or another leader has replaced it.
// After a failed write it waits one Window. deferred reports that the cap defers the machine, and did not before.
func (r *Reconciler) answer(ctx context.Context, key client.ObjectKey, c *cluster, m *machine, w departurecap.Waiting) (deferred bool, err error) {
	e, d := c.members[m.UID], m.record
	was, now := d.Waiting, v1alpha1.DepartureWaiting{Reason: string(w.Reason), Message: w.Message}
	failed := isFailed(was) && w.Reason == departurecap.BlastRadiusCap // Its own expired admission may use up the cap.
	if failed || was != nil && (*was == now || e.waiting == now) || r.Clock.Since(e.unanswered).Abs() < departurecap.Window {
		return false, nil
	}
	d.Waiting = &now
	wrote, err := r.set(ctx, m.DeepCopy(), d, nil)
	if !wrote {
		return false, err
	}
	e.waiting = now
	if w.Reason != departurecap.BlastRadiusCap || was != nil && was.Reason == now.Reason {
		return false, nil
	}
	capped.WithLabelValues(key.Namespace, key.Name, string(w.Lane)).Inc()
	return true, nil
}

// admit writes the admission of a machine, and deletes the Machine, unless another client has. If no extension and no
// departure step applies, it removes 5-Spot's hooks in the same write. With hooks on it, Cluster API would reconcile the
// Machine twice, a second apart. An error other than a conflict does not show whether the admission was written, so the
// Machine counts as admitted.
func (r *Reconciler) admit(ctx context.Context, key client.ObjectKey, c *cluster, m *machine, a departurecap.Candidate, now time.Time) error {
	if due, _ := m.due(r.Clock.Now()); !due {
		return nil
	}
	d := m.record
	d.Since, d.Cycle, d.ExpiredAt = v1alpha1.DepartureTime(now), now.UnixMilli(), metav1.Time{}
	if !isFailed(d.Waiting) {
		d.Waiting = nil
	}
	if m.scheduled != nil {
		d.Grace = children.FormatGrace(children.GraceOf(m.scheduled))
	}
	var change func(*clusterv1.Machine)
	if m.DeletionTimestamp.IsZero() && r.unhooked(ctx, m) {
		change = children.RemoveHooks
	}
	admitted := m.DeepCopy()
	wrote, err := r.set(ctx, admitted, d, change)
	e, answered := c.members[m.UID], r.Clock.Now()
	if err != nil && !apierrors.IsConflict(err) {
		e.admitted, e.deleted, e.refused = answered, false, answered
	}
	if err != nil || !wrote {
		return err
	}
	e.admitted, e.deleted, e.failure = answered, false, ""
	if m.record.ExpiredAt.IsZero() {
		departures.WithLabelValues(key.Namespace, key.Name, string(a.Lane)).Inc()
	}
	if stays, err := r.refresh(ctx, key, m); err != nil || stays {
		return err // After an error, the next run deletes the Machine.
	}
	return r.delete(ctx, c, m, admitted)
}

// refresh reads the Cluster and the ScheduledMachine of m again, because the write of an admission may take long. stays
// reports that one of them is paused, or that the ScheduledMachine was created anew.
func (r *Reconciler) refresh(ctx context.Context, key client.ObjectKey, m *machine) (stays bool, err error) {
	o := observation{cluster: &clusterv1.Cluster{}}
	if err := r.Reader.Get(ctx, key, o.cluster); client.IgnoreNotFound(err) != nil {
		return false, err
	}
	if m.scheduled == nil {
		return o.isParentPaused(m), nil
	}
	m.scheduled = m.scheduled.DeepCopy()
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(m.scheduled), m.scheduled); err != nil {
		return false, err
	}
	return o.isParentPaused(m) || children.Orphaned(m.Machine, m.scheduled.UID), nil
}

// due reports whether the machine still has to leave. It stays if its schedule or the clock was corrected since, or if
// its ScheduledMachine was deleted and created anew. change is when that changes by time alone, zero if never.
func (m *machine) due(now time.Time) (due bool, change time.Time) {
	switch {
	case !m.DeletionTimestamp.IsZero():
		return true, time.Time{}
	case m.scheduled == nil, m.record.Urgent(): // Nothing requests the departure any more: the planner admits no urgent one.
		return false, time.Time{}
	case m.record.Interrupted:
		return true, time.Time{}
	case m.record.Reason == v1alpha1.ScheduledMachineDeleted:
		return !m.scheduled.DeletionTimestamp.IsZero(), time.Time{}
	case m.record.Reason != v1alpha1.WindowClosed:
		return true, time.Time{}
	}
	s := machineschedule.Resolve(m.scheduled, now)
	return s.Closed(), s.Change
}

// unhooked reports whether no extension and no departure step applies to a Machine. If that cannot be read, the hooks
// stay: HookReconciler reads it again when Cluster API waits at them.
func (r *Reconciler) unhooked(ctx context.Context, m *machine) bool {
	hooks, err := extensions.For(ctx, r.Reader, m.Namespace)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Looking for extensions before Machine leaves", "Machine", client.ObjectKeyFromObject(m))
		return false
	}
	steps, err := r.Steps.For(ctx, m.Machine)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Looking for departure steps before Machine leaves", "Machine", client.ObjectKeyFromObject(m))
	}
	return err == nil && len(hooks)+len(steps) == 0
}

// delete deletes an admitted Machine that is still due to leave. admitted is its version with the admission.
func (r *Reconciler) delete(ctx context.Context, c *cluster, m *machine, admitted *clusterv1.Machine) error {
	e, now := c.members[m.UID], r.Clock.Now()
	if state, _ := children.StateOf(admitted, now); state != children.Admitted {
		return nil // The admission has expired, or another client has deleted it: HookReconciler removes the hooks.
	}
	if due, _ := m.due(now); !due {
		return nil // Its ScheduledMachine removes the request, or the admission expires.
	}
	i := intentOf(m.Machine, m.scheduled, m.record.Reason, now)
	i.Lane = m.record.Lane
	err := r.Actuate.For(i).Depart(ctx, &children.Set{Machine: admitted})
	e.tried = r.Clock.Now()
	if e.deleted, e.failure = err == nil, ""; err != nil && !apierrors.IsConflict(err) {
		e.failure = err.Error()
		telemetry.Failed(name)
		ctrl.LoggerFrom(ctx).Error(err, "Deleting Machine", "Machine", client.ObjectKeyFromObject(m))
	}
	return err
}

// intentOf returns the intent of a departure without its lane. sm is nil for a Machine without a ScheduledMachine.
func intentOf(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, reason v1alpha1.DepartureReason, now time.Time) actuate.Intent {
	i := actuate.Intent{
		Reason: reason, At: now, Machine: client.ObjectKeyFromObject(m),
		Cluster: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName},
	}
	if sm != nil {
		i.Machine, i.Grace = client.ObjectKeyFromObject(sm), children.GraceOf(sm)
	}
	return i
}

// isFailed reports whether the last deletion of a Machine failed.
func isFailed(w *v1alpha1.DepartureWaiting) bool {
	return w != nil && w.Reason == v1alpha1.DeletionFailed
}

// expire returns the request that the expired admission of a machine becomes again. failure is why its Machine could not
// be deleted, empty if unknown.
func expire(m *machine, failure string) v1alpha1.Departure {
	d := m.record
	if failure != "" {
		d.Waiting = &v1alpha1.DepartureWaiting{Reason: v1alpha1.DeletionFailed, Message: clip.Message(failure)}
	}
	if d.RequestedAt.IsZero() {
		d.RequestedAt = d.Since
	}
	d.ExpiredAt = v1alpha1.DepartureTime(m.expires)
	d.Since, d.Cycle, d.Skips = metav1.Time{}, 0, nil
	return d
}

// set writes a record, and another change, to a copy of a Machine. It reports whether it did. A Machine that is
// gone is no error.
func (r *Reconciler) set(ctx context.Context, to *clusterv1.Machine, d v1alpha1.Departure, change func(*clusterv1.Machine)) (wrote bool, err error) {
	err = r.Actuate.EditLocked(ctx, to, func(m *clusterv1.Machine) {
		if change != nil {
			change(m)
		}
		children.SetDeparture(m, d)
	})
	if kinds.NoObject(err) {
		return false, nil
	}
	if err != nil && !apierrors.IsConflict(err) {
		telemetry.Failed(name)
		ctrl.LoggerFrom(ctx).Error(err, "Writing departure record", "Machine", client.ObjectKeyFromObject(to))
	}
	return err == nil, err
}
