// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// stalls are the machines that are not given back although everything was tried. It is
// in memory only: what stalls is tried again, and noted again.
type stalls struct {
	mu    sync.Mutex
	known map[ctrl.Request]stall
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

type stall struct{ class, why string }

// Stall notes why the machine of an owner who asked is not given back, and reports
// whether that is news. Stalls of one class are one: the first text stays, because an
// API server adds to each what differs, and nobody would read it.
func (r *Rush) Stall(req ctrl.Request, class, why string) (news bool) {
	if r == nil {
		return false
	}
	r.stalls.mu.Lock()
	defer r.stalls.mu.Unlock()
	if r.stalls.known[req].class == class {
		return false
	}
	if r.stalls.known == nil {
		r.stalls.known = map[ctrl.Request]stall{}
	}
	r.stalls.known[req] = stall{class, why}
	r.stalls.wake(req)
	return true
}

// Unstall notes that it gets on.
func (r *Rush) Unstall(req ctrl.Request) {
	if r == nil {
		return
	}
	r.stalls.mu.Lock()
	defer r.stalls.mu.Unlock()
	if _, known := r.stalls.known[req]; known {
		delete(r.stalls.known, req)
		r.stalls.wake(req)
	}
}

// Stalled says why the machine is not given back, empty if nothing is known to stop it.
func (r *Rush) Stalled(req ctrl.Request) string {
	if r == nil {
		return ""
	}
	r.stalls.mu.Lock()
	defer r.stalls.mu.Unlock()
	return r.stalls.known[req].why
}

// Stalls wakes one controller for an object whenever Stalled says something else of it.
func (r *Rush) Stalls() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		if r == nil {
			return nil
		}
		r.stalls.mu.Lock()
		defer r.stalls.mu.Unlock()
		r.stalls.queue = queue
		for req := range r.stalls.known {
			queue.Add(req)
		}
		return nil
	})
}

func (s *stalls) wake(req ctrl.Request) {
	if s.queue != nil {
		s.queue.Add(req)
	}
}
