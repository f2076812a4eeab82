// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"sync/atomic"
	"time"
)

const (
	// maxReportDelay is the maximum time for which the report on one owner's request is delayed for other owners.
	maxReportDelay = time.Minute
	// reportRecheck is the interval of checks whether the delay is over. No event ends it, and a check makes no API
	// request.
	reportRecheck = time.Second
)

// ReclaimTracker tracks the owners' requests that are being served, and the ones that cannot be served. While several
// owners wait, controllers delay their reports, because a report costs the API server as much as the removal of
// a machine. With 200 simultaneous requests, a quarter of the API requests before the last removal were
// reports.
//
// It also stores why a removal fails, for the controller that reports on the machine. The zero value is ready
// for use. It is safe for concurrent use.
type ReclaimTracker struct {
	owners atomic.Int64
	stalls stalls
}

// Serve counts an owner as being served until done is called.
func (r *ReclaimTracker) Serve() (done func()) {
	r.owners.Add(1)
	return func() { r.owners.Add(-1) }
}

// Wait returns how long other work on a machine is delayed, zero if it is not. requestedAt has the instants at
// which its owner requested it, in order.
func (r *ReclaimTracker) Wait(requestedAt []time.Time, now time.Time) time.Duration {
	if r.owners.Load() < 2 {
		return 0
	}
	return min(Remaining(maxReportDelay, requestedAt, now), reportRecheck)
}

// Remaining returns how much of d is left since the last instant. It returns zero without an instant, and for an
// instant in the future: a clock was wrong.
func Remaining(d time.Duration, instants []time.Time, now time.Time) time.Duration {
	if len(instants) == 0 {
		return 0
	}
	left := instants[len(instants)-1].Add(d).Sub(now)
	if left > d {
		return 0
	}
	return max(left, 0)
}
