// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// A machine is a Machine that 5-Spot made and this manager serves.
type machine struct {
	*clusterv1.Machine

	// scheduled is its ScheduledMachine, nil for an orphan: a Machine whose ScheduledMachine does not exist any more.
	scheduled *v1alpha1.ScheduledMachine
	// exempt reports that it leaves without an admission.
	exempt bool
	// record is its request, also if that is not written yet.
	record v1alpha1.Departure
	// expires is when its admission expires, if it has one.
	expires time.Time
}

// An observation has the objects of one Cluster, as one run of the planner reads them.
type observation struct {
	// cluster is nil if it does not exist.
	cluster *clusterv1.Cluster
	// scheduled are the ScheduledMachines of the Cluster by name. machines are its Machines that this manager serves,
	// unserved the others that 5-Spot made.
	scheduled          map[string]*v1alpha1.ScheduledMachine
	machines, unserved []*machine

	fleet departurecap.Fleet
	// requested are the machines that wait for an admission, by departurecap.Candidate.Name. fleet.Candidates also has
	// machines whose request is not written yet.
	requested map[string]*machine
	// paused are the requests of paused Machines. They are no candidates.
	paused []departurecap.Waiting
	// admitted are the machines that this planner has admitted and whose deletion is not acknowledged. expired are the
	// machines whose admission has expired.
	admitted, expired []*machine
	// next is the first instant at which fleet changes without an event, zero if there is none.
	next time.Time
}

// A member is what the planner remembers of a Machine between runs.
type member struct {
	// neverRan reports that the Machine never had a Node. A status can be lost.
	neverRan bool
	// started reports that the Machine has started to leave, and that this is counted.
	started bool
	// admitted is when the write of this planner's admission ended, zero without one. The cache may not show it yet. tried is
	// when its last delete call ended. deleted reports that the API server acknowledged it.
	admitted, tried time.Time
	deleted         bool
	// failure is the error of its last delete call, empty if there is none.
	failure string
	// refused is when an admission could last not be written, zero if never. It may have been written.
	refused time.Time
	// waiting is the latest answer that this planner wrote to the record. unanswered is when an answer could last not be
	// written, zero if never.
	waiting    v1alpha1.DepartureWaiting
	unanswered time.Time
}

// observe reads a Cluster and its machines from the cache. A Cluster that the cache lacks is read live: clusterctl move
// creates it paused, and the cache may show its Machines first.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*observation, error) {
	o := &observation{cluster: &clusterv1.Cluster{}, scheduled: map[string]*v1alpha1.ScheduledMachine{}, requested: map[string]*machine{}}
	owners, list := &v1alpha1.ScheduledMachineList{}, &clusterv1.MachineList{}
	if err := r.Reader.List(ctx, owners, client.InNamespace(key.Namespace), client.MatchingFields{wake.ClusterIndex: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	for i := range owners.Items {
		o.scheduled[owners.Items[i].Name] = &owners.Items[i]
	}
	err := r.Reader.Get(ctx, key, o.cluster)
	if apierrors.IsNotFound(err) && len(owners.Items) > 0 {
		err = r.Live.Get(ctx, key, o.cluster)
	}
	switch {
	case apierrors.IsNotFound(err):
		o.cluster = nil
	case err != nil:
		return nil, fmt.Errorf("reading Cluster: %w", err)
	}
	for i := range list.Items {
		m := &machine{Machine: &list.Items[i]}
		if m.Spec.ClusterName != key.Name || !children.MadeByUs(m.Machine) {
			continue
		}
		if r.own(o, m); r.serves(o, m) {
			o.machines = append(o.machines, m)
		} else {
			o.unserved = append(o.unserved, m)
		}
	}
	return o, nil
}

// own finds the ScheduledMachine of m. The kill switch of another ScheduledMachine with the same name counts.
func (r *Reconciler) own(o *observation, m *machine) {
	sm := o.scheduled[children.ParentOf(m)]
	m.exempt = children.Exempt(sm, o.cluster)
	if sm != nil && !children.Orphaned(m.Machine, sm.UID) {
		m.scheduled = sm
	}
}

// serves reports whether this manager serves m. Labels of the ScheduledMachine count, for an orphan its own or its
// Cluster's.
func (r *Reconciler) serves(o *observation, m *machine) bool {
	switch {
	case m.scheduled != nil:
		return workload.MatchesFilter(r.WatchFilter, m.scheduled)
	case o.cluster != nil:
		return workload.ServedBy(r.WatchFilter, m.Machine, o.cluster)
	default:
		return workload.ServedBy(r.WatchFilter, m.Machine)
	}
}

// count counts the machines of an observation, and updates what the planner remembers of them. In the planner's first run
// for the Cluster, departures that have started are dated by their records.
func (c *cluster) count(o *observation, now time.Time) {
	first := c.members == nil
	if first {
		c.members = map[types.UID]*member{}
	}
	o.fleet.Now = now
	seen := map[types.UID]bool{}
	for _, m := range o.machines {
		seen[m.UID] = true
		e := c.members[m.UID]
		if e == nil {
			e = &member{neverRan: true}
			c.members[m.UID] = e
		}
		e.neverRan = e.neverRan && children.NeverRan(m.Machine, m.scheduled)
		left := children.LeavingSince(m.Machine, m.scheduled, now)
		if e.deleted && m.DeletionTimestamp.IsZero() && now.Before(e.tried.Add(departurecap.MaxWait)) {
			left = e.tried // The cache does not show the deletion yet. After MaxWait, it was undone by a restore.
		}
		if left.IsZero() {
			e.started = false
			c.addStaying(o, m, e)
			continue
		}
		if first {
			c.start(e, instant.Earliest(left.Add(time.Second), now)) // The record has a precision of one second.
		} else {
			c.start(e, now)
		}
	}
	c.forget(o, seen, now)
	c.starts = departurecap.Within(c.starts, now, departurecap.MaxWait)
	o.fleet.Started = append(o.fleet.Started, c.starts...)
	o.fleet.Departed += len(c.starts)
	if n := len(c.starts); len(o.machines) == 0 && n > 0 {
		o.next = c.starts[n-1].Add(departurecap.MaxWait) // The planner forgets the Cluster.
	}
}

// forget drops the members that were not seen. A machine that is gone has left. One that another manager serves has not.
func (c *cluster) forget(o *observation, seen map[types.UID]bool, now time.Time) {
	for _, m := range o.unserved {
		delete(c.members, m.UID)
	}
	for uid, e := range c.members {
		if !seen[uid] {
			c.start(e, now)
			delete(c.members, uid)
		}
	}
}

// start counts the start of a departure, once. A deletion that the API server acknowledged started no later than that.
func (c *cluster) start(e *member, at time.Time) {
	if e.started {
		return
	}
	e.started = true
	if e.deleted {
		at = instant.Earliest(at, e.tried)
	}
	c.starts = append(c.starts, at)
	if !e.neverRan {
		c.departed++
	}
}

// expiry returns when an admission with this Since expires. An admission of this planner expires one Window after its
// write ended, but not before its last delete call ended.
func (e *member) expiry(since time.Time) time.Time {
	if e.admitted.IsZero() || since.After(e.admitted) {
		return since.Add(children.AdmissionLasts)
	}
	return instant.Latest(e.admitted.Add(departurecap.Window), e.tried)
}

// addStaying counts a machine that has not started to leave. An admission that has not expired counts as a start at the
// instant of each run. After its expiry it counts for one more Window, because a delete call that was sent may still
// arrive. Only this planner's own admissions lead to a deletion. An admission of another leader, or a forged one,
// expires, whatever its lane.
func (c *cluster) addStaying(o *observation, m *machine, e *member) {
	f := &o.fleet
	d, admitted := children.DepartureOf(m.Machine, f.Now)
	own := !e.admitted.IsZero() && !f.Now.Before(e.admitted) && f.Now.Before(e.admitted.Add(departurecap.Window))
	m.expires = e.expiry(d.Since.Time)
	switch {
	case m.exempt:
	case admitted || own:
		expired := !f.Now.Before(m.expires)
		if expired && o.isPaused(m) {
			break
		}
		f.Departed++
		f.Started = append(f.Started, instant.Earliest(f.Now, m.expires))
		m.record = d
		switch {
		case expired:
			o.expired = append(o.expired, m)
		case own && admitted && !e.deleted && !o.isPaused(m) && !f.Now.Before(e.tried.Add(retry)):
			o.admitted = append(o.admitted, m)
			o.next = instant.Earliest(o.next, f.Now.Add(retry))
		case own && admitted && !e.deleted && !o.isPaused(m):
			o.next = instant.Earliest(o.next, e.tried.Add(retry))
		default:
			o.next = instant.Earliest(o.next, m.expires)
		}
		return
	}
	f.Active++
	if e.neverRan {
		f.NeverRan++
	}
	candidate, ok := o.candidate(m, e)
	if !ok {
		return
	}
	if !m.record.ExpiredAt.IsZero() {
		f.Started = append(f.Started, m.record.ExpiredAt.Time)
	}
	f.Candidates = append(f.Candidates, candidate)
}

// candidate returns the candidate of a machine that has not started to leave. ok is false if the machine is not due to
// leave, or needs no admission.
//
// A machine whose announced window has ended takes its place in the order before its ScheduledMachine has requested the
// departure, for one Window: otherwise the fastest request would leave before the least important machine.
func (o *observation) candidate(m *machine, e *member) (departurecap.Candidate, bool) {
	now := o.fleet.Now
	orphan := m.scheduled == nil && m.DeletionTimestamp.IsZero() // Nothing requests its departure any more.
	if m.exempt || orphan || o.isParentPaused(m) {
		return departurecap.Candidate{}, false
	}
	state, record := children.StateOf(m.Machine, now)
	requested := state == children.Requested && (m.DeletionTimestamp.IsZero() || !record.Urgent()) // heldRecord replaces an urgent reason.
	if m.record = record; !requested {
		requested, m.record = children.Held(m.Machine, now), heldRecord(m, now)
	}
	if !requested {
		end, announced := o.unrequested(m)
		if !announced {
			return departurecap.Candidate{}, false
		}
		m.record = v1alpha1.Departure{Lane: v1alpha1.ScheduledLane, RequestedAt: metav1.NewTime(end), End: metav1.NewTime(end)}
		o.next = instant.Earliest(o.next, end.Add(departurecap.Window))
	}
	due, change := m.due(now)
	if !due {
		o.next = instant.Earliest(o.next, change)
		return departurecap.Candidate{}, false // Its ScheduledMachine removes the request.
	}
	c := departurecap.Candidate{
		Name: client.ObjectKeyFromObject(m).String(), Lane: departurecap.Unscheduled, NeverRan: e.neverRan,
		Since: instant.Earliest(m.record.RequestedAt.Time, now), Failed: instant.Latest(m.record.ExpiredAt.Time, e.refused),
	}
	if m.record.Lane == v1alpha1.ScheduledLane {
		c.Lane, c.End = departurecap.Scheduled, m.record.End.Time
	}
	m.record.Lane = v1alpha1.DepartureLane(c.Lane) // A record by hand may have any.
	if m.scheduled != nil {
		c.Priority = m.scheduled.PriorityOrDefault()
	}
	if requested {
		o.requested[c.Name] = m
	}
	if !annotations.HasPaused(m.Machine) {
		return c, true
	}
	if requested {
		o.paused = append(o.paused, departurecap.Waiting{Candidate: c, Reason: v1alpha1.MachinePausedReason, Message: fmt.Sprintf(
			"Machine %s has the annotation %s: it stays until that is removed", m.Name, clusterv1.PausedAnnotation)})
	}
	return departurecap.Candidate{}, false
}

// isPaused reports whether nothing is done to m.
func (o *observation) isPaused(m *machine) bool {
	return annotations.HasPaused(m.Machine) || o.isParentPaused(m)
}

// isParentPaused reports whether the Cluster or the ScheduledMachine of m is paused.
func (o *observation) isParentPaused(m *machine) bool {
	return o.cluster != nil && ptr.Deref(o.cluster.Spec.Paused, false) || m.scheduled != nil && annotations.HasPaused(m.scheduled)
}

// unrequested returns the announced end of m's window, if it ended within the last Window.
func (o *observation) unrequested(m *machine) (end time.Time, ok bool) {
	if m.scheduled == nil || !m.scheduled.ScheduleEnabled() || !m.DeletionTimestamp.IsZero() {
		return time.Time{}, false
	}
	end, ok = children.AnnouncedEnd(m.scheduled, o.fleet.Now)
	return end, ok && o.fleet.Now.Before(end.Add(departurecap.Window))
}

// heldRecord returns the request for a Machine that another client deleted and 5-Spot's hook holds. A record of another
// Machine keeps its reason.
func heldRecord(m *machine, now time.Time) v1alpha1.Departure {
	if m.DeletionTimestamp.IsZero() {
		return v1alpha1.Departure{}
	}
	d := v1alpha1.Departure{Reason: v1alpha1.DeletedByOthers, Lane: v1alpha1.UnscheduledLane, ActionID: string(uuid.NewUUID())}
	d.RequestedAt = v1alpha1.DepartureTime(instant.Earliest(now, m.DeletionTimestamp.Time))
	if m.scheduled != nil && !m.scheduled.DeletionTimestamp.IsZero() {
		d.Reason = v1alpha1.ScheduledMachineDeleted
	}
	if was, ok := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation]); ok && !was.Urgent() {
		d.Reason, d.ActionID = was.Reason, was.ActionID
	}
	return d
}
