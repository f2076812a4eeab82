// SPDX-License-Identifier: Apache-2.0

package departurecap

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
)

// Decide returns which candidates start now. limit is the part of a Cluster's machines, and of the machines of all
// Clusters, that may start to leave within Window. Without a limit and holds, all candidates start.
func Decide(f Fleet, limit Fraction) Plan {
	started := Recent(f.Started, f.Now)
	p := Plan{Members: f.members(Unscheduled, len(started))}
	for _, c := range InOrder(f.Candidates, f.Now) {
		if hold, held := f.hold(c.Lane); held {
			p.Held = append(p.Held, Waiting{Candidate: c, Reason: hold.Reason, Message: hold.Message})
			continue
		}
		if w, deferred := f.deferred(limit, c, started, len(p.Admitted)); deferred {
			p.Deferred = append(p.Deferred, w)
			continue
		}
		p.Admitted = append(p.Admitted, c)
	}
	p.Next = p.next(f, limit, started)
	return p
}

// deferred returns the limit that defers a candidate after so many admissions: the Cluster's, or the one of all Clusters.
// A candidate of another Cluster goes first if it has waited longer than MaxWait and longer than this one. After a recent
// refusal of this one, all candidates of other Clusters go first.
func (f Fleet) deferred(limit Fraction, c Candidate, started []time.Time, admitted int) (Waiting, bool) {
	if limit <= 0 {
		return Waiting{}, false
	}
	members := f.members(c.Lane, len(started))
	if most := limit.Of(members); len(started)+admitted >= most {
		return Waiting{c, BlastRadiusCap, limit.message(), most, members}, true
	}
	o := f.Others
	recent := len(started) + len(Recent(o.Started, f.Now))
	members = Counts{Active: f.Active + o.Active, NeverRan: f.NeverRan + o.NeverRan, Departed: f.Departed + o.Departed}.members(c.Lane, recent)
	most := limit.Of(members)
	if recent+admitted+o.before(c, f.Now) >= most || c.refused(f.Now) && o.Waiting > 0 {
		return Waiting{c, BlastRadiusCap, limit.message(), most, members}, true
	}
	return Waiting{}, false
}

// After returns the counts of the Cluster after the admissions of a plan with a limit, which start at an instant.
func (f Fleet) After(p Plan, limit Fraction, at time.Time) Counts {
	c := f.Counts
	c.Active, c.Departed = c.Active-len(p.Admitted), c.Departed+len(p.Admitted)
	c.Started, c.Planned = slices.Clip(c.Started), f.Now
	for _, a := range p.Admitted {
		if a.NeverRan {
			c.NeverRan--
		}
		c.Started = append(c.Started, at)
	}
	started := len(Recent(f.Started, f.Now))
	for _, w := range p.Deferred {
		if w.refused(f.Now) {
			continue
		}
		c.Waiting++
		most := limit.Of(f.members(w.Lane, started))
		if w.aged(f.Now) && started+len(p.Admitted)+len(c.Aged) < most {
			c.Aged = append(c.Aged, w.waits())
		}
	}
	return c
}

// before returns how many of the candidates in c.Aged leave before a candidate of another Cluster.
func (c Counts) before(o Candidate, now time.Time) (n int) {
	for _, since := range c.Aged {
		if !o.aged(now) || since.Before(o.waits()) {
			n++
		}
	}
	return n
}

// members returns the number of machines from which the limit of a lane is computed: active machines and recent starts.
// Scheduled counts starts within MaxWait, so that its limit does not shrink while many machines leave at the end of a
// shared window. Unscheduled does not count machines that never ran: many of them would allow most of the others to
// leave at once.
func (c Counts) members(lane Lane, started int) int {
	if lane == Scheduled {
		return c.Active + max(started, c.Departed)
	}
	return c.Active - c.NeverRan + started
}

// message describes why a candidate waits. It is the same for the Cluster's limit and the one of all Clusters: each change is a write.
func (f Fraction) message() string {
	return fmt.Sprintf("At most %s of the machines (at least one) start to leave within %s: others go first", f.percent(), Window)
}

// hold returns the first hold that applies to a lane.
func (f Fleet) hold(lane Lane) (Hold, bool) {
	for _, h := range f.Holds {
		if !h.Unscheduled || lane != Scheduled {
			return h, true
		}
	}
	return Hold{}, false
}

// InOrder returns the candidates in the order in which they leave. Candidates that have waited longer than
// MaxWait come first, the longest wait first; the others follow by compare. Recently refused candidates come
// last, the latest refusal at the end. Otherwise machines that cannot leave would use up the starts of all
// others.
func InOrder(candidates []Candidate, now time.Time) []Candidate {
	ordered := slices.Clone(candidates)
	slices.SortFunc(ordered, func(a, b Candidate) int {
		refused, aged := a.refused(now), a.aged(now)
		switch {
		case refused != b.refused(now):
			return before(!refused)
		case refused && !a.Failed.Equal(b.Failed):
			return a.Failed.Compare(b.Failed)
		case aged != b.aged(now):
			return before(aged)
		case aged && !a.waits().Equal(b.waits()):
			return a.waits().Compare(b.waits())
		default:
			return a.compare(b)
		}
	})
	return ordered
}

// refused reports whether an admission of c failed within MaxWait. After that, c gets priority again by its
// waiting time. A refusal in the future does not count: the clock was set back.
func (c Candidate) refused(now time.Time) bool {
	return !c.Failed.IsZero() && !c.Failed.After(now) && now.Sub(c.Failed) <= MaxWait
}

// aged reports whether c has waited longer than MaxWait. It then precedes less important candidates. Otherwise
// new candidates could defer it forever.
func (c Candidate) aged(now time.Time) bool {
	return !c.waits().IsZero() && now.Sub(c.waits()) > MaxWait
}

// waits returns since when c waits for an admission. An admission that it could not use restarts the wait.
func (c Candidate) waits() time.Time { return instant.Latest(c.Since, c.Failed) }

// compare orders candidates by priority, the lowest first. Within a priority, the earliest window end comes
// first, and candidates without a window end last.
func (c Candidate) compare(o Candidate) int {
	switch {
	case c.Priority != o.Priority:
		return cmp.Compare(c.Priority, o.Priority)
	case c.End.IsZero() != o.End.IsZero():
		return before(o.End.IsZero())
	case !c.End.Equal(o.End):
		return c.End.Compare(o.End)
	default:
		return cmp.Compare(c.Name, o.Name)
	}
}

func before(yes bool) int {
	if yes {
		return -1
	}
	return 1
}
