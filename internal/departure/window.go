// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"slices"
	"time"
)

// Recent returns those of the starts that are inside Window at now, oldest first. One that
// is ahead of now is taken for one of now: a clock that was set back gives nobody more
// room. Who keeps what is returned, and not what was given, waits for such a one no longer
// than Window.
func Recent(started []time.Time, now time.Time) []time.Time {
	var recent []time.Time
	for _, at := range started {
		if at.After(now) {
			at = now
		}
		if now.Sub(at) < Window {
			recent = append(recent, at)
		}
	}
	slices.SortFunc(recent, time.Time.Compare)
	return recent
}

// next is the next instant at which time alone changes the plan, once it is carried out.
func (p Plan) next(f Fleet, started []time.Time) time.Time {
	var next time.Time
	var counted, bounded bool // Somebody waits for others to start; an unscheduled one does.
	for _, w := range p.Deferred {
		counted = counted || !w.InFlight
		bounded = bounded || !w.InFlight && w.Lane != Scheduled
		next = Sooner(next, w.Latest())
	}
	if !counted {
		return next
	}
	for range p.Admitted {
		started = append(started, f.Now)
	}
	active, leaving := f.Active-len(p.Admitted), f.Leaving+len(p.Admitted)
	for i, at := range started {
		left := len(started) - i - 1 // inside the window once this one is not
		opens := p.Limits.Cap.Of(active+left) > left
		fills := bounded && leaving >= p.Limits.slots(active+left)
		if opens || fills {
			return Sooner(next, at.Add(Window))
		}
	}
	return next
}

// Sooner is the earlier of two instants, of which zero is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
