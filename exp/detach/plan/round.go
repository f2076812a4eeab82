// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// A Member is the place of a Node in one pool, as one load balancer sees it.
type Member struct {
	// Node tells the Node from others.
	Node string
	// Place is the place, and Status what the load balancer says of it.
	Place  balancer.Membership
	Status balancer.Status
	// Taken says that it is on record that we took the place, or are about to.
	Taken bool
	// TakenAt is when; zero if we did not.
	TakenAt time.Time
	// Out says that the Node is to be out, since when, and that it does not wait for others.
	Out    bool
	Since  time.Time
	Urgent bool
	// Gone says that there is no such Node now, and Volatile that the load balancer forgets what
	// was taken when it starts anew.
	Gone, Volatile bool
	// Closing says that nobody looks at the load balancer any more after this.
	Closing bool
	// Successor is another LoadBalancer of the same pool for which the Node stays out, empty if there is
	// none. Found says that it has found the place.
	Successor string
	Found     bool
}

// An Act is what is done about a Member. The zero value is nothing.
type Act string

const (
	// Drain takes the place. That it is taken is recorded first.
	Drain Act = "Drain"
	// Restore gives the place back.
	Restore Act = "Restore"
	// Release takes it off the record: the Node has its place, or it is not ours to give.
	Release Act = "Release"
	// HandOver moves the place, which stays out, to the record of the successor.
	HandOver Act = "HandOver"
)

// Settles reports whether the place is off the record of the load balancer afterwards.
func (a Act) Settles() bool { return a == Release || a == HandOver }

// A Step is what to do about a Member, and what is waited for.
type Step struct {
	Act Act
	// Held says why the Member stays although its Node is to be out.
	Held string
}

// Round says what to do about each Member of one load balancer. A pool keeps at least floor
// members that get new connections; who is urgent counts, and is not kept. Who has waited
// for longest goes first.
func Round(members []Member, floor int) []Step {
	steps, pools := make([]Step, len(members)), map[string]*pool{}
	for _, m := range members {
		p := pools[m.Place.Pool]
		if p == nil {
			p = &pool{}
			pools[m.Place.Pool] = p
		}
		p.see(m.Status)
	}
	for _, i := range order(members) {
		steps[i] = step(members[i], pools[members[i].Place.Pool], floor)
	}
	return steps
}

// order is who comes first: those who do not wait, and then by time.
func order(members []Member) []int {
	indexes := make([]int, len(members))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(i, j int) int {
		a, b := members[i], members[j]
		switch {
		case a.Urgent != b.Urgent && a.Urgent:
			return -1
		case a.Urgent != b.Urgent:
			return 1
		default:
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node))
		}
	})
	return indexes
}

func step(m Member, p *pool, floor int) Step {
	switch {
	case m.Gone && (!m.Volatile || !m.Taken):
		return Step{} // The place belongs to the host that registers the address again.
	case m.Out && m.Status.State == balancer.Attached:
		return p.leave(m, floor)
	case m.Out, !m.Taken, m.Gone:
		return Step{}
	}
	switch m.Status.State {
	case balancer.Attached, balancer.Absent:
		return m.release()
	case balancer.Draining, balancer.Drained:
		switch {
		case m.Successor == "":
			return Step{Act: Restore}
		case m.Found:
			return Step{Act: HandOver}
		default:
			return Step{} // The successor has not answered yet.
		}
	case balancer.Disabled: // What we did may show again when somebody enables it.
		if m.Closing {
			return m.release()
		}
		return Step{}
	default:
		return Step{} // Nobody knows.
	}
}

// release takes a Member off the record, unless a part of the load balancer did not answer,
// which may have it drain yet.
func (m Member) release() Step {
	if m.Status.Partial {
		return Step{}
	}
	return Step{Act: Release}
}

// A pool is how many of its members get new connections.
type pool struct {
	// seen says that the load balancer has said so, and unknown that it did not for one that
	// does.
	seen, unknown bool
	serving       int
}

// see takes what the load balancer says of one member. All say the same of a pool, unless it
// changes meanwhile: the least counts.
func (p *pool) see(s balancer.Status) {
	if s.Others == nil {
		p.unknown = p.unknown || s.State == balancer.Attached
		return
	}
	serving := *s.Others
	if s.State == balancer.Attached {
		serving++
	}
	if !p.seen || serving < p.serving {
		p.seen, p.serving = true, serving
	}
}

// leave takes a member out, if enough others are left.
func (p *pool) leave(m Member, floor int) Step {
	switch {
	case m.Urgent, floor == 0:
	case p.unknown:
		return Step{Held: "nobody knows how many other members get connections"}
	case p.serving-1 < floor:
		return Step{Held: fmt.Sprintf("only %d other members get connections, and %d must", max(p.serving-1, 0), floor)}
	}
	p.serving--
	return Step{Act: Drain}
}
