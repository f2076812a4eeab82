// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// stalls are the machines whose removal fails although everything was tried. The state is in memory: after a
// restart the removal fails again and is recorded again.
type stalls struct {
	mu    sync.Mutex
	known map[ctrl.Request]stall
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

type stall struct{ class, why string }

// RecordStuck records why a requested machine is not removed. news reports whether the class is new. The first text
// of a class stays, because later errors differ only in details that the API server adds.
func (r *ReclaimTracker) RecordStuck(req ctrl.Request, class, why string) (isNew bool) {
	r.stalls.mu.Lock()
	defer r.stalls.mu.Unlock()
	if r.stalls.known[req].class == class {
		return false
	}
	if r.stalls.known == nil {
		r.stalls.known = map[ctrl.Request]stall{}
	}
	r.stalls.known[req] = stall{class, why}
	r.stalls.enqueue(req)
	return true
}

// ClearStuck records that the removal makes progress.
func (r *ReclaimTracker) ClearStuck(req ctrl.Request) {
	r.stalls.mu.Lock()
	defer r.stalls.mu.Unlock()
	if _, known := r.stalls.known[req]; known {
		delete(r.stalls.known, req)
		r.stalls.enqueue(req)
	}
}

// StuckReason returns why the machine is not removed, empty if no cause is recorded.
func (r *ReclaimTracker) StuckReason(req ctrl.Request) string {
	r.stalls.mu.Lock()
	defer r.stalls.mu.Unlock()
	return r.stalls.known[req].why
}

// Stalls is the source that enqueues an object at one controller whenever the result of StuckReason changes.
func (r *ReclaimTracker) Stalls() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.stalls.mu.Lock()
		defer r.stalls.mu.Unlock()
		r.stalls.queue = queue
		for req := range r.stalls.known {
			queue.Add(req)
		}
		return nil
	})
}

func (s *stalls) enqueue(req ctrl.Request) {
	if s.queue != nil {
		s.queue.Add(req)
	}
}
