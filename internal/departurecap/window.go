// SPDX-License-Identifier: Apache-2.0

package departurecap

import (
	"slices"
	"time"
)

// Recent returns the starts within Window before now, oldest first. A start after now counts as a start at now.
// Otherwise more machines could leave after the clock was set back. A caller that stores the result instead of its
// argument counts such a start for at most one Window.
func Recent(started []time.Time, now time.Time) []time.Time { return Within(started, now, Window) }

// Within is Recent for another duration.
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

// next returns the first instant at which a start leaves the window and a deferred candidate is admitted, after
// this plan. It returns zero if no candidate is deferred.
func (p Plan) next(f Fleet, limit Fraction, started []time.Time) time.Time {
	if len(p.Deferred) == 0 {
		return time.Time{}
	}
	now := f.Now
	c := f.After(p, limit, now)
	f.Active, f.NeverRan, f.Departed, f.Started = c.Active, c.NeverRan, c.Departed, nil
	elsewhere := Recent(f.Others.Started, f.Now)
	for range p.Admitted {
		started = append(started, f.Now)
	}
	instants := slices.Concat(started, elsewhere)
	slices.SortFunc(instants, time.Time.Compare)
	lanes := map[Lane]Candidate{}
	for _, w := range slices.Backward(p.Deferred) {
		lanes[w.Lane] = w.Candidate // the first one of the lane
	}
	for _, at := range slices.Compact(instants) {
		f.Now = at.Add(Window)
		left := Recent(started, f.Now)
		for _, candidate := range lanes {
			if _, deferred := f.deferred(limit, candidate, left, 0); !deferred {
				return f.Now
			}
		}
	}
	return now.Add(Window) // Candidates of other Clusters come first.
}
