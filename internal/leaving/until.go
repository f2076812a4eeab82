// SPDX-License-Identifier: Apache-2.0

package leaving

import "time"

// Until is when a step holds nobody any more that has the given time. That is counted from
// when the phase began, which is on the Machine. A manager that comes late, or whose clock
// is ahead of the API server's, still gives it time for one call; and none gives it more
// than it has. A question that nobody asked is asked now.
func (p Progress) Until(has, call time.Duration, began, now time.Time) time.Time {
	asked := p.Asked
	if asked.IsZero() {
		asked = now
	}
	least, most, until := asked.Add(min(has, call)), asked.Add(has), began.Add(has)
	switch {
	case until.Before(least):
		return least
	case until.After(most):
		return most
	default:
		return until
	}
}
