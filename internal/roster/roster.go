// SPDX-License-Identifier: Apache-2.0

// Package roster answers one question: which machines does a Cluster have, who of them is
// to leave and from when on, and who may? The reconcilers of ScheduledMachines tell, and ask
// before they take a machine away; the departure planner answers. All of it is in memory:
// after a start everybody tells again.
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

// An Entry is what is told of the machine of one ScheduledMachine.
type Entry struct {
	// Cluster is the one that the machine belongs to.
	Cluster client.ObjectKey
	// Scheduled is the UID of the ScheduledMachine, empty if that is gone.
	Scheduled types.UID
	// Machine is the UID of its Machine, empty if there is none.
	Machine types.UID
	// NeverRan reports that the Machine never had a Node.
	NeverRan bool
	// Left is when the Machine started to leave, zero if it has not.
	Left time.Time
	// From is from when on it is to leave: an instant to come is one at which nothing but
	// time makes it a candidate. Zero is never.
	From time.Time
	// Generation is that of the ScheduledMachine from which all this follows.
	Generation int64
	// Lane, Priority and End are those of a departure.Candidate.
	Lane     departure.Lane
	Priority int32
	End      time.Time
}

// A Verdict is what the planner says of a machine that is to leave.
type Verdict struct {
	// Granted says that it may start now, in this lane, and Cycle by which run of the planner:
	// its instant, in milliseconds since 1970.
	Granted bool
	Lane    departure.Lane
	Cycle   int64
	// Reason and Message say what it waits for; empty until the planner has looked.
	Reason  departure.Reason
	Message string
}

// grantLasts is for how long a machine may start once the planner has said so. One whose
// reconciler does not come, such as that of an object which cannot be read, is asked for
// again.
const grantLasts = departure.Window

// A Roster has the machines of each Cluster. Its zero value is ready for use; nil lets
// everybody leave. It is safe for concurrent use.
type Roster struct {
	mu       sync.Mutex
	members  map[types.NamespacedName]*member
	clusters map[client.ObjectKey]*cluster
	// names are those of the members, by the UID of their Machine.
	names map[types.UID]types.NamespacedName
	// planner is the queue of the planner, once it is there, and machines wake who asks for a
	// machine.
	planner  workqueue.TypedRateLimitingInterface[ctrl.Request]
	machines []func(scheduled types.NamespacedName)
}

type cluster struct {
	members map[types.NamespacedName]*member
	// started are the starts of departures within departure.Window, departed the starts within
	// departure.Patience, and departures counts all starts.
	started, departed []time.Time
	departures        int
}

// A member is a machine.
type member struct {
	Entry

	// verdict is the planner's of Machine, and granted when it was given.
	verdict Verdict
	granted time.Time
	// begun is when the machine was last about to start to leave, or was answered; zero if it
	// has not tried. trying says that the answer is still to come.
	begun  time.Time
	trying bool
	// missed is when a grant of the machine ended that was not used, and refused when one did
	// that it had tried to use in vain.
	missed, refused time.Time
}

// Tell notes what is known of a machine, and wakes the planner where that changes anything.
func (r *Roster) Tell(name types.NamespacedName, e Entry, now time.Time) {
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
	case m.Scheduled != e.Scheduled: // It was made anew, and has the Machine of the one before.
		m.takeBack(r.clusters[m.Cluster], now)
		r.drop(name, m)
		m = nil
	case e.Generation < m.Generation: // Who tells it has read a cache that is late. A start is one all the same.
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

// Leave notes that a machine starts to leave, and waits for nobody.
func (r *Roster) Leave(name types.NamespacedName, machine types.UID, now time.Time) {
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

// update takes over what is told now, and reports whether that is news.
func (m *member) update(e Entry, c *cluster, now time.Time) bool {
	was := m.Entry
	if was.due(now) && e.due(now) && was.Lane == e.Lane {
		e.From = was.From // It has been waiting all the while.
	}
	if !was.Left.IsZero() && !e.Left.IsZero() {
		e.Left = was.Left
	}
	e.NeverRan = e.NeverRan && was.NeverRan // The status of a Machine can be lost.
	m.Entry = e
	if stays := !was.Left.IsZero() && e.Left.IsZero(); stays || !e.due(now) && e.Left.IsZero() {
		m.takeBack(c, now)
		m.missed, m.refused = time.Time{}, time.Time{}
	}
	return was != e
}

// due reports whether the machine is to leave.
func (e Entry) due(now time.Time) bool {
	return e.Left.IsZero() && !e.From.IsZero() && !e.From.After(now)
}

// start counts a departure that is seen to have begun, once.
func (m *member) start(c *cluster, now time.Time) {
	if m.verdict == departed {
		return
	}
	at := m.tried(now)
	if at.IsZero() {
		at = m.Left.Add(time.Second) // It is stored to the second.
	}
	if at.After(now) {
		at = now
	}
	c.started = append(departure.Recent(c.started, now), at)
	c.departed = append(departure.Within(c.departed, now, departure.Patience), at)
	if !m.NeverRan {
		c.departures++
	}
	m.revoke()
	m.verdict = departed
}

// tried is the latest instant at which the machine can have started to leave by what it was
// granted; zero if it has not tried.
func (m *member) tried(now time.Time) time.Time {
	if m.trying {
		return now
	}
	return m.begun
}

// departed is the verdict of a machine that has started to leave.
var departed = Verdict{Granted: true}

// gone counts the departure of a machine that nobody has seen leaving.
func (r *Roster) gone(m *member, now time.Time) {
	if m.Left.IsZero() {
		m.Left = now
	}
	m.start(r.clusters[m.Cluster], now)
}

// Told returns what was told of a machine last, and whether anything was.
func (r *Roster) Told(name types.NamespacedName) (Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil {
		return m.Entry, true
	}
	return Entry{}, false
}

// Departures returns how many departures of a Cluster have started, without machines that never ran. It is reset
// when the Cluster has no machines.
func (r *Roster) Departures(key client.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clusters[key]; c != nil {
		return c.departures
	}
	return 0
}

// Gone notes that a machine is no more.
func (r *Roster) Gone(name types.NamespacedName, now time.Time) {
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

// Forget forgets a machine that is none of ours any more. It has not left, as far as anybody
// knows.
func (r *Roster) Forget(name types.NamespacedName, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil {
		m.takeBack(r.clusters[m.Cluster], now)
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

// rename gives a machine that was told of under another name this one, and returns nil if there is
// none: its ScheduledMachine is gone, or has adopted it. Whatever it was granted stands, and it
// never counts twice.
func (r *Roster) rename(name types.NamespacedName, e Entry) *member {
	before, known := r.names[e.Machine]
	_, was := OrphanOf(before)
	if _, is := OrphanOf(name); !known || is == was {
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

// drop takes a machine off. Its Cluster stays while its departures count.
func (r *Roster) drop(name types.NamespacedName, m *member) {
	delete(r.members, name)
	if r.names[m.Machine] == name {
		delete(r.names, m.Machine)
	}
	delete(r.clusters[m.Cluster].members, name)
	wake(r.planner, m.Cluster)
}

// Begin asks whether a machine may start to leave, right before it does. Each time counts,
// but as one: who is told yes and fails asks again. Who is told yes calls Tried after.
func (r *Roster) Begin(name types.NamespacedName, machine types.UID, now time.Time) Verdict {
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
			m.miss(r.clusters[m.Cluster], now)
			wake(r.planner, m.Cluster)
			return Verdict{}
		}
		m.begun, m.trying = now, true
	}
	return m.verdict
}

// Tried notes that the API server has answered who began to leave, whatever it said: what it
// does counts from the answer on, which may be long after the request.
func (r *Roster) Tried(name types.NamespacedName, machine types.UID, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[name]; m != nil && m.Machine == machine && m.trying {
		m.begun, m.trying = now, false
	}
}

// Look returns what Begin last said, or would say, without asking: nobody is about to leave.
func (r *Roster) Look(name types.NamespacedName, machine types.UID) Verdict {
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

// grantEnds is when a grant ends, however often the machine has tried: one that is refused
// each time must not keep others.
func (m *member) grantEnds() time.Time { return m.granted.Add(grantLasts) }

// miss takes back a grant that was not used.
func (m *member) miss(c *cluster, now time.Time) {
	if !m.begun.IsZero() {
		m.refused = now
	}
	m.takeBack(c, now)
	m.missed = now
}

// takeBack takes back a grant. The last try counts: it may have been carried out, and its
// answer lost, or not be seen yet.
func (m *member) takeBack(c *cluster, now time.Time) {
	if at := m.tried(now); !at.IsZero() {
		c.started = append(departure.Recent(c.started, now), at)
	}
	m.revoke()
}

// steppedAside is until when a machine is no candidate that has not used its grant: others
// must not wait for one that cannot leave. Zero is that it has missed none, or that the clock
// was set back since.
func (m *member) steppedAside(now time.Time) time.Time {
	if m.missed.IsZero() || m.missed.After(now) {
		return time.Time{}
	}
	return m.missed.Add(grantLasts)
}

func (m *member) revoke() {
	m.verdict, m.granted, m.begun, m.trying = Verdict{}, time.Time{}, time.Time{}, false
}

func wake(queue workqueue.TypedRateLimitingInterface[ctrl.Request], who types.NamespacedName) {
	if queue != nil {
		queue.Add(ctrl.Request{NamespacedName: who})
	}
}
