// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
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

	mu sync.Mutex
	// stalls has no entry for a machine that makes progress. After a restart a removal fails again and is recorded again.
	stalls map[ctrl.Request]stall
	queue  queue
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

// A stall is why a machine is not removed although everything was tried.
type stall struct{ class, why string }

// RecordStuck records why a requested machine is not removed. isNew reports whether the class is new. The first text
// of a class stays, because later errors differ only in details that the API server adds.
func (r *ReclaimTracker) RecordStuck(req ctrl.Request, class, why string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stalls[req].class == class {
		return false
	}
	if r.stalls == nil {
		r.stalls = map[ctrl.Request]stall{}
	}
	r.stalls[req] = stall{class, why}
	r.enqueue(req)
	return true
}

// ClearStuck records that the removal makes progress.
func (r *ReclaimTracker) ClearStuck(req ctrl.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.stalls[req]; known {
		delete(r.stalls, req)
		r.enqueue(req)
	}
}

// StuckReason returns why the machine is not removed, empty if no cause is recorded.
func (r *ReclaimTracker) StuckReason(req ctrl.Request) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stalls[req].why
}

// Stalls is the source that enqueues an object at one controller whenever the result of StuckReason changes.
func (r *ReclaimTracker) Stalls() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue = q
		for req := range r.stalls {
			q.Add(req)
		}
		return nil
	})
}

func (r *ReclaimTracker) enqueue(req ctrl.Request) {
	if r.queue != nil {
		r.queue.Add(req)
	}
}
