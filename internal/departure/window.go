// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"slices"
	"time"
)

// Recent returns the starts inside Window at now, oldest first. A start after now counts as a start at now:
// a clock that was set back raises no limit. A caller that keeps the result, and not its argument, counts
// such a start no longer than Window.
func Recent(started []time.Time, now time.Time) []time.Time { return Within(started, now, Window) }

// Within is Recent for another length of time.
func Within(started []time.Time, now time.Time, length time.Duration) []time.Time {
	var recent []time.Time
	for _, at := range started {
		if at.After(now) {
			at = now
		}
		if now.Sub(at) < length {
			recent = append(recent, at)
		}
	}
	slices.SortFunc(recent, time.Time.Compare)
	return recent
}

// next is the first instant at which a start leaves the window and a deferred candidate may start, once
// the plan is carried out.
func (p Plan) next(f Fleet, started []time.Time) time.Time {
	if len(p.Deferred) == 0 {
		return time.Time{}
	}
	for range p.Admitted {
		started = append(started, f.Now)
	}
	f.Active, f.Departed = f.Active-len(p.Admitted), f.Departed+len(p.Admitted)
	lanes := map[Lane]bool{}
	for _, w := range p.Deferred {
		lanes[w.Lane] = true
	}
	for i, at := range started {
		left := len(started) - i - 1 // inside the window once this one is not
		for lane := range lanes {
			if p.Limits.most(f.members(lane, left)) > left {
				return at.Add(Window)
			}
		}
	}
	return time.Time{}
}

// Sooner is the earlier of two instants, of which zero is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
