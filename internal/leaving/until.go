// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"cmp"
	"time"
)

// Until is the step's deadline: the start of the phase + has. It is never before the first call + min(has, call), so
// that a late manager makes one call. It is never after the first call + has, so that clock skew adds no time. If no
// call was made, the first call counts as made now.
func (p Progress) Until(has, call time.Duration, began, now time.Time) time.Time {
	asked := p.FirstCall(now)
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

// FirstCall returns when the step was first called, now if it was not.
func (p Progress) FirstCall(now time.Time) time.Time { return cmp.Or(p.Asked, now) }
