// SPDX-License-Identifier: Apache-2.0

package leaving

import "time"

// Until returns when the Machine stops waiting for a step. has is the time that the step may take. It counts from the
// start of the phase, which is recorded on the Machine. The result is at least min(has, call) and at most has after the
// first call. A manager that starts late then still makes one call, and a clock that differs from the API server's adds
// no time. If no call was made, the first call counts as made now.
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
func (p Progress) FirstCall(now time.Time) time.Time {
	if p.Asked.IsZero() {
		return now
	}
	return p.Asked
}
