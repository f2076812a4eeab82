// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Decide plans which candidates start now. Without limits and gates all of them do.
func Decide(f Fleet, l Limits) Plan {
	started := Recent(f.Started, f.Now)
	p := Plan{Limits: l, Gates: f.Gates, Members: f.members(Unscheduled, len(started)), ScheduledMembers: f.members(Scheduled, len(started))}
	p.Cap = l.Cap.Of(p.Members)
	for _, c := range InOrder(f.Candidates, f.Now) {
		if reason, closed := f.Gates.closed(c.Lane); closed {
			p.Held = append(p.Held, Waiting{c, reason})
			continue
		}
		if len(started)+len(p.Admitted) >= l.most(f.members(c.Lane, len(started))) {
			p.Deferred = append(p.Deferred, Waiting{c, BlastRadiusCap})
			continue
		}
		p.Admitted = append(p.Admitted, c)
	}
	if p.Cap > 0 {
		p.Left = max(0, p.Cap-len(started)-len(p.Admitted))
	}
	p.Next = p.next(f, started)
	return p
}

// members is how many machines the limit of a lane counts: the active ones, and those that started to leave
// within Window. Scheduled counts the starts within Patience, so that its limit does not shrink
// while a shared window end is worked off. Unscheduled does not count machines that never ran: many of them would
// let most of the others leave at once.
func (f Fleet) members(lane Lane, started int) int {
	if lane == Scheduled {
		return f.Active + max(started, f.Departed)
	}
	return f.Active - f.NeverRan + started
}

// most is how many of these members may start within Window.
func (l Limits) most(members int) int {
	if l.Cap <= 0 {
		return math.MaxInt
	}
	return l.Cap.Of(members)
}

// closed returns what holds the lane back. The order is policy: what a person did comes
// before what we doubt, and what holds everybody before what holds some.
func (g Gates) closed(lane Lane) (Reason, bool) {
	switch {
	case g.Hold != "":
		return DeparturesHeld, true
	case g.ClockSuspect:
		return ClockSuspect, true
	case g.WarmUp >= Cold, g.WarmUp >= Learning && lane != Scheduled:
		return WarmingUp, true
	case g.WipeQuarantine && lane != Scheduled:
		return WipeQuarantine, true
	default:
		return "", false
	}
}

// InOrder returns the candidates in the order in which they leave: who has waited too long,
// the longest first, and then the least important. Who was refused a moment ago comes after who
// was not, the last one last: those that cannot leave would else take the turns of all.
func InOrder(candidates []Candidate, now time.Time) []Candidate {
	ordered := slices.Clone(candidates)
	slices.SortFunc(ordered, func(a, b Candidate) int {
		refused, aged := a.refused(now), a.aged(now)
		switch {
		case refused != b.refused(now):
			return before(!refused)
		case refused && !a.Refused.Equal(b.Refused):
			return a.Refused.Compare(b.Refused)
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

// refused reports whether c was let go in vain a moment ago. It is forgotten when c has waited
// for its next turn for so long that it comes before others: it may be able to leave by now. A
// refusal that is ahead of now is none: the clock was set back.
func (c Candidate) refused(now time.Time) bool {
	return !c.Refused.IsZero() && !c.Refused.After(now) && now.Sub(c.Refused) <= Patience
}

// aged reports whether c has waited so long that it comes before those that are less
// important: else new ones could keep it for ever.
func (c Candidate) aged(now time.Time) bool {
	return !c.waits().IsZero() && now.Sub(c.waits()) > Patience
}

// waits is since when c has waited for a turn: one that it could not use was one.
func (c Candidate) waits() time.Time {
	if c.Refused.After(c.Since) {
		return c.Refused
	}
	return c.Since
}

// compare puts the least important first, of equal ones that whose window ended first, and
// those without a window last.
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
