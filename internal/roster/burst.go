// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// kills are what is known of the kill switches of one Cluster. After a restart nothing is:
// those that waited are a new burst, whose first are served at once. That is accepted, for
// somebody has turned on each of them.
type kills struct {
	burst rails.Burst
	// judged is the last instant at which they were judged.
	judged time.Time
}

// A Burst is how many kill switches of a Cluster wait because many were turned on at once.
type Burst struct {
	Waiting int
	// AtOnce is how many of Members are served at once.
	AtOnce, Members int
	// Next is when a live look is due; zero is never.
	Next time.Time
}

// askAgain is how soon somebody asks again who was told of by others meanwhile. They have
// seen more, and an event is on its way that says the same.
const askAgain = time.Second

// Kill asks whether a machine may be removed whose kill switch is on, right before it is. The
// answer needs no planner: the first of a burst are served by whoever finds them. Who may go
// is counted as having started.
func (r *Roster) Kill(name types.NamespacedName, machine types.UID, now time.Time) Verdict {
	if r == nil {
		return departed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[name]
	if m == nil || m.Machine != machine || !m.killed() {
		return Verdict{Until: now.Add(askAgain)}
	}
	c := r.clusters[m.Cluster]
	if r.WipeGuard {
		c.judge(nil, now)
		if until := c.kills.burst.Until(m.flip(name)); !until.IsZero() {
			return Verdict{Reason: departure.KillSwitchBurst, Message: departure.ExplainBurst(until), Until: until}
		}
	}
	if m.Left.IsZero() {
		m.Left = now
		m.start(c, now)
	}
	return departed
}

// Burst returns which kill switches of a Cluster wait.
func (r *Roster) Burst(key client.ObjectKey, now time.Time) Burst { return r.Confirm(key, nil, now) }

// A Switch is the kill switch of a ScheduledMachine as the API server has just shown it.
type Switch struct {
	// Scheduled is the UID of the ScheduledMachine, and Generation its generation.
	Scheduled  types.UID
	Generation int64
	On         bool
}

// Confirm notes a live look at the kill switches of a Cluster. One that is older than what its
// reconciler saw says nothing. One that is off counts as off, however late its reconciler
// hears of it. Who need not wait any more is woken.
func (r *Roster) Confirm(key client.ObjectKey, shown map[types.NamespacedName]Switch, now time.Time) Burst {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[key]
	if c == nil || !r.WipeGuard {
		return Burst{}
	}
	var confirmed []string
	for name, s := range shown {
		m := c.members[name]
		if m == nil || m.Scheduled != s.Scheduled || s.Generation < max(m.Generation, m.offAt) {
			continue
		}
		if m.off, m.offAt = !s.On, s.Generation; m.killed() {
			confirmed = append(confirmed, m.flip(name))
		}
	}
	members, p := c.judge(confirmed, now)
	for name, m := range c.members {
		if _, served := slices.BinarySearch(p.Served, m.flip(name)); !served || !m.Left.IsZero() {
			continue
		}
		for _, tell := range r.machines {
			tell(name)
		}
	}
	return Burst{Waiting: len(p.Waiting), AtOnce: rails.AtOnce(members), Members: members, Next: p.Next}
}

// killed reports whether the kill switch of the machine is on, as far as anybody has seen.
func (m *member) killed() bool { return m.Killed && !m.off }

// flip names the kill switch of one machine: what was said of it says nothing of another one
// of the same name.
func (m *member) flip(name types.NamespacedName) string {
	return name.String() + "/" + string(m.Scheduled) + "/" + string(m.Machine)
}

// judge looks at all kill switches of a Cluster, and says how many machines it has.
func (c *cluster) judge(confirmed []string, now time.Time) (members int, p rails.KillPlan) {
	k := rails.KillSwitches{Now: c.kills.at(now), Shown: confirmed}
	c.started = departure.Recent(c.started, now)
	k.Members = len(c.started)
	for name, m := range c.members {
		if m.killed() {
			k.On = append(k.On, m.flip(name))
		}
		if m.Left.IsZero() {
			k.Members++
		}
	}
	c.kills.burst, p = c.kills.burst.Judge(k)
	c.kills.judged = k.Now
	return k.Members, p
}

// at is the instant of a look. That of a worker which comes late is no clock that was set
// back: nobody's wait is over earlier because of it.
func (k kills) at(now time.Time) time.Time {
	if late := k.judged.Sub(now); late > 0 && late < rails.Apart {
		return k.judged
	}
	return now
}
