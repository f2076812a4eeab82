// SPDX-License-Identifier: Apache-2.0

// Package workers limits the time of every reconcile and reports stuck workers to the health check. After its
// deadline, a reconcile is canceled and the object retried with back-off.
//
// Two metrics of controller-runtime show this. controller_runtime_reconcile_timeouts_total counts the
// reconciles that reached their deadline. workqueue_longest_running_processor_seconds is the age of the oldest
// one.
package workers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Deadline is the deadline of a reconcile. It is longer than the ten seconds that an API server waits
// for an admission webhook.
const Deadline = 30 * time.Second

// stuckAfter is after how many deadlines a worker counts as stuck. A reconcile that honours its context ends much
// earlier.
const stuckAfter = 2

// A Watch tracks what the workers of all controllers are doing. It is safe for concurrent use.
type Watch struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	busy map[worker]time.Time
}

// worker is one reconcile in progress.
type worker struct {
	controller string
	req        ctrl.Request
}

// New returns a Watch that uses a clock.
func New(c clock.PassiveClock) *Watch {
	return &Watch{clock: c, busy: map[worker]time.Time{}}
}

// Options returns the options of a controller with this number of workers.
func (w *Watch) Options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   Deadline,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			return &queue{
				PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[ctrl.Request]) {
					o.RateLimiter, o.Log = limiter, ctrl.Log.WithValues("controller", name)
				}),
				watch: w, name: name,
			}
		},
	}
}

// Check implements healthz.Checker. Its error names the stuck workers.
func (w *Watch) Check(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	var stuck []string
	for k, since := range w.busy {
		if took := now.Sub(since); took > stuckAfter*Deadline {
			stuck = append(stuck, fmt.Sprintf("%s has been at %s for %s", k.controller, k.req, took.Round(time.Second)))
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	slices.Sort(stuck)
	return fmt.Errorf("%d workers are stuck: %s", len(stuck), strings.Join(stuck[:min(len(stuck), 3)], ", "))
}

// queue records which requests its workers take and finish.
type queue struct {
	priorityqueue.PriorityQueue[ctrl.Request]

	watch *Watch
	name  string
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (req ctrl.Request, priority int, shutdown bool) {
	req, priority, shutdown = q.PriorityQueue.GetWithPriority()
	if !shutdown {
		q.watch.mu.Lock()
		defer q.watch.mu.Unlock()
		q.watch.busy[worker{q.name, req}] = q.watch.clock.Now()
	}
	return req, priority, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(req ctrl.Request) {
	q.watch.mu.Lock()
	delete(q.watch.busy, worker{q.name, req})
	q.watch.mu.Unlock()
	q.PriorityQueue.Done(req)
}
