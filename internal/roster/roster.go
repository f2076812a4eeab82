// SPDX-License-Identifier: Apache-2.0

// Package roster is the in-memory list of the machines of each Cluster. The reconcilers of ScheduledMachines
// and Machines report their machines: when each is due to leave, and when it started to. The departure planner
// reads the list and publishes its decisions to it. A reconciler requests a grant with RequestGrant before it deletes
// a Machine. Nothing is stored: after a restart every reconciler reports again.
package roster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

// An Entry is what a reconciler reports about the machine of one ScheduledMachine.
type Entry struct {
	// Cluster is the Cluster of the machine.
	Cluster client.ObjectKey
	// Scheduled is the UID of the ScheduledMachine, empty if it does not exist any more.
	Scheduled types.UID
	// Machine is the UID of the Machine, empty if there is none.
	Machine types.UID
	// NeverRan reports that the Machine never had a Node.
	NeverRan bool
	// Left is when the machine started to leave, zero if it has not.
	Left time.Time
	// From is when the machine becomes due to leave, zero if it does not leave. It may be in the future: then
	// it becomes due without another report.
	From time.Time
	// Generation is the generation of the ScheduledMachine from which the Entry was derived.
	Generation int64
	// Lane, Priority and End are the fields of departure.Candidate.
	Lane     departure.Lane
	Priority int32
	End      time.Time
}

// A Verdict is the planner's decision on a machine that is due to leave.
type Verdict struct {
	// Granted reports that the machine may start to leave now, in this Lane. Cycle is the planner run: its
	// instant, in milliseconds since 1970.
	Granted bool
	Lane    departure.Lane
	Cycle   int64
	// Reason and Message describe why the machine waits. They are empty before the first planner run.
	Reason  departure.Reason
	Message string
}

// grantLasts is how long a grant is valid. The planner then decides again, for example if the reconciler cannot
// read the object.
const grantLasts = departure.Window

// A Roster has the machines of each Cluster. The zero value is ready for use. A nil Roster grants every
// departure. It is safe for concurrent use.
type Roster struct {
	mu       sync.Mutex
	members  map[types.NamespacedName]*member
	clusters map[client.ObjectKey]*cluster
	// names has the names of the members by the UID of their Machine.
	names map[types.UID]types.NamespacedName
	// planner is the planner's queue, nil before it starts. machines are the functions that enqueue a machine
	// at the controllers.
	planner  workqueue.TypedRateLimitingInterface[ctrl.Request]
	machines []func(scheduled types.NamespacedName)
}

type cluster struct {
	members map[types.NamespacedName]*member
	// started has the starts of departures within departure.Window, departed the starts within
	// departure.MaxWait. departures counts all starts of machines that had a Node.
	started, departed []time.Time
	departures        int
}

// A member is one machine.
type member struct {
	Entry

	// verdict is the latest decision on Machine. granted is when it was granted.
	verdict Verdict
	granted time.Time
	// begun is when the machine last attempted to leave, or when that attempt returned; zero if it made none.
	// trying reports that an attempt has not returned.
	begun  time.Time
	trying bool
	// missed is when the last unused grant expired. refused is when the last grant expired whose attempts all
	// failed.
	missed, refused time.Time
}

// Report records an Entry, and enqueues the Cluster at the planner if it changes anything.
func (r *Roster) Report(name types.NamespacedName, e Entry, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[name]
	if m == nil {
		m = r.rename(name, e)
	}
	switch {
	case m == nil:
	case m.Cluster != e.Cluster:
		r.drop(name, m)
		m = nil
	case m.Machine != e.Machine:
		r.gone(m, now)
		r.drop(name, m)
		m = nil
	case m.Scheduled != e.Scheduled: // It was created anew and has the Machine of the one before.
		m.revokeGrant(r.clusters[m.Cluster], now)
		r.drop(name, m)
		m = nil
	// The reporting reconciler has read a stale cache. A reported start counts all the same.
	case e.Generation < m.Generation:
		left := e.Left
		if e = m.Entry; e.Left.IsZero() {
			e.Left = left
		}
	}
	if e.Machine == "" {
		return
	}
	if m == nil {
		m = r.add(name, e)
	} else if !m.update(e, r.clusters[e.Cluster], now) {
		return
	}
	if !m.Left.IsZero() {
		m.start(r.clusters[e.Cluster], now)
	}
	wake(r.planner, e.Cluster)
}

// RecordExemptStart records that a machine starts to leave without a grant.
func (r *Roster) RecordExemptStart(name types.NamespacedName, machine types.UID, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil && m.Machine == machine && m.Left.IsZero() {
		m.Left = now
		m.start(r.clusters[m.Cluster], now)
	}
}

// update replaces the Entry, and reports whether it changed.
func (m *member) update(e Entry, c *cluster, now time.Time) bool {
	was := m.Entry
	if was.due(now) && e.due(now) && was.Lane == e.Lane {
		e.From = was.From // The candidate has been due without interruption.
	}
	if !was.Left.IsZero() && !e.Left.IsZero() {
		e.Left = was.Left
	}
	e.NeverRan = e.NeverRan && was.NeverRan // The status of a Machine can be lost.
	m.Entry = e
	if stays := !was.Left.IsZero() && e.Left.IsZero(); stays || !e.due(now) && e.Left.IsZero() {
		m.revokeGrant(c, now)
		m.missed, m.refused = time.Time{}, time.Time{}
	}
	return was != e
}

// due reports whether the machine is due to leave and has not started.
func (e Entry) due(now time.Time) bool {
	return e.Left.IsZero() && !e.From.IsZero() && !e.From.After(now)
}

// start counts the start of a departure, once.
func (m *member) start(c *cluster, now time.Time) {
	if m.verdict == departed {
		return
	}
	at := m.tried(now)
	if at.IsZero() {
		at = m.Left.Add(time.Second) // The recorded instant has a precision of one second.
	}
	if at.After(now) {
		at = now
	}
	c.started = append(departure.Recent(c.started, now), at)
	c.departed = append(departure.Within(c.departed, now, departure.MaxWait), at)
	if !m.NeverRan {
		c.departures++
	}
	m.revoke()
	m.verdict = departed
}

// tried returns the latest instant at which a granted attempt may have started the departure, zero if there was
// no attempt.
func (m *member) tried(now time.Time) time.Time {
	if m.trying {
		return now
	}
	return m.begun
}

// departed is the verdict on a machine that has started to leave.
var departed = Verdict{Granted: true}

// gone counts the departure of a machine that disappeared without a recorded start.
func (r *Roster) gone(m *member, now time.Time) {
	if m.Left.IsZero() {
		m.Left = now
	}
	m.start(r.clusters[m.Cluster], now)
}

// LastReport returns the latest Entry of a machine, and whether there is one.
func (r *Roster) LastReport(name types.NamespacedName) (Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil {
		return m.Entry, true
	}
	return Entry{}, false
}

// Departures returns how many departures of a Cluster have started, without machines that never ran. It is
// reset when the Cluster has no machines.
func (r *Roster) Departures(key client.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clusters[key]; c != nil {
		return c.departures
	}
	return 0
}

// RecordGone records that a machine does not exist any more. That counts as a departure.
func (r *Roster) RecordGone(name types.NamespacedName, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil {
		r.gone(m, now)
		r.drop(name, m)
	}
}

// Forget removes a machine that this manager does not serve any more. That does not count as a departure.
func (r *Roster) Forget(name types.NamespacedName, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil {
		m.revokeGrant(r.clusters[m.Cluster], now)
		r.drop(name, m)
	}
}

func (r *Roster) add(name types.NamespacedName, e Entry) *member {
	if r.members == nil {
		r.members, r.clusters = map[types.NamespacedName]*member{}, map[client.ObjectKey]*cluster{}
		r.names = map[types.UID]types.NamespacedName{}
	}
	c := r.clusters[e.Cluster]
	if c == nil {
		c = &cluster{members: map[types.NamespacedName]*member{}}
		r.clusters[e.Cluster] = c
	}
	m := &member{Entry: e}
	r.members[name], c.members[name], r.names[e.Machine] = m, m, name
	return m
}

// rename moves the entry of a Machine between its orphan name and the name of its ScheduledMachine: the
// ScheduledMachine was deleted, or has adopted the Machine. The entry keeps its grant and is not counted twice.
// It returns nil if there is no such entry.
func (r *Roster) rename(name types.NamespacedName, e Entry) *member {
	before, known := r.names[e.Machine]
	_, was := ParseOrphanName(before)
	if _, is := ParseOrphanName(name); !known || is == was {
		return nil
	}
	m := r.members[before]
	if m.Cluster != e.Cluster {
		return nil
	}
	delete(r.members, before)
	delete(r.clusters[m.Cluster].members, before)
	m.Scheduled, m.Generation = e.Scheduled, e.Generation
	r.members[name], r.clusters[m.Cluster].members[name], r.names[e.Machine] = m, m, name
	return m
}

// drop removes a machine. Its Cluster stays in the list while its recent starts count.
func (r *Roster) drop(name types.NamespacedName, m *member) {
	delete(r.members, name)
	if r.names[m.Machine] == name {
		delete(r.names, m.Machine)
	}
	delete(r.clusters[m.Cluster].members, name)
	wake(r.planner, m.Cluster)
}

// RequestGrant requests the grant for a machine, immediately before its departure. A caller whose delete call fails
// requests it again. The repeated attempts of one grant count as one start. A caller that gets the grant must
// call FinishAttempt afterwards.
func (r *Roster) RequestGrant(name types.NamespacedName, machine types.UID, now time.Time) Verdict {
	if r == nil {
		return Verdict{Granted: true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[name]
	if m == nil || m.Machine != machine {
		return Verdict{}
	}
	if m.verdict.Granted && m.Left.IsZero() {
		if m.expired(now) {
			m.expireGrant(r.clusters[m.Cluster], now)
			wake(r.planner, m.Cluster)
			return Verdict{}
		}
		m.begun, m.trying = now, true
	}
	return m.verdict
}

// FinishAttempt records that the delete call after RequestGrant has returned, with or without an error. The start
// counts from then, because the call may take long.
func (r *Roster) FinishAttempt(name types.NamespacedName, machine types.UID, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil && m.Machine == machine && m.trying {
		m.begun, m.trying = now, false
	}
}

// CurrentVerdict returns the verdict on a machine, without recording an attempt.
func (r *Roster) CurrentVerdict(name types.NamespacedName, machine types.UID) Verdict {
	if r == nil {
		return Verdict{Granted: true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil && m.Machine == machine {
		return m.verdict
	}
	return Verdict{}
}

// expired reports whether a grant was not used in time.
func (m *member) expired(now time.Time) bool {
	return m.Left.IsZero() && m.verdict.Granted && !now.Before(m.grantEnds())
}

// grantEnds returns when a grant expires. Further attempts do not extend it: a machine whose delete call always
// fails must not block others.
func (m *member) grantEnds() time.Time { return m.granted.Add(grantLasts) }

// expireGrant records an expired grant and revokes it.
func (m *member) expireGrant(c *cluster, now time.Time) {
	if !m.begun.IsZero() {
		m.refused = now
	}
	m.revokeGrant(c, now)
	m.missed = now
}

// revokeGrant revokes a grant. The last attempt still counts as a start: it may have succeeded although its
// response was lost or the watch event has not arrived.
func (m *member) revokeGrant(c *cluster, now time.Time) {
	if at := m.tried(now); !at.IsZero() {
		c.started = append(departure.Recent(c.started, now), at)
	}
	m.revoke()
}

// suspendedUntil returns when a machine that did not use its grant becomes a candidate again. Until then it must
// not block others. Zero means that it missed none, or that the clock was set back since.
func (m *member) suspendedUntil(now time.Time) time.Time {
	if m.missed.IsZero() || m.missed.After(now) {
		return time.Time{}
	}
	return m.missed.Add(grantLasts)
}

func (m *member) revoke() {
	m.verdict, m.granted, m.begun, m.trying = Verdict{}, time.Time{}, time.Time{}, false
}

func wake(queue workqueue.TypedRateLimitingInterface[ctrl.Request], name types.NamespacedName) {
	if queue != nil {
		queue.Add(ctrl.Request{NamespacedName: name})
	}
}
