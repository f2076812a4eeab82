// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// first is the priority of urgent requests. An event of a change has priority zero, and an event of an initial
// list has a lower one.
const first = 100

// PrioritizeUrgent gives events of urgent objects precedence in the queue. Without it, a manager that starts reconciles
// the whole fleet before a machine whose owner already waits.
func PrioritizeUrgent(h handler.EventHandler, urgent func(client.Object) bool) handler.EventHandler {
	queueFor := func(q queue, obj client.Object) queue {
		if p, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok && obj != nil && urgent(obj) {
			return urgentQueue{p, func(ctrl.Request) bool { return true }}
		}
		return q
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { h.Create(ctx, e, queueFor(q, e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			h.Update(ctx, e, queueFor(q, e.ObjectNew))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { h.Delete(ctx, e, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) {
			h.Generic(ctx, e, queueFor(q, e.Object))
		},
	}
}

// PrioritizeUrgentRequests gives urgent requests precedence in the queue of a controller, whatever adds them: an event of
// any object, or a retry. opts has a queue of package workers.
func PrioritizeUrgentRequests(opts *controller.Options, urgent func(ctrl.Request) bool) {
	newQueue := opts.NewQueue
	opts.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) queue {
		q := newQueue(name, limiter)
		if p, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
			return urgentQueue{p, urgent}
		}
		return q
	}
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// urgentQueue is a queue that adds urgent requests with the priority first.
type urgentQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	urgent func(ctrl.Request) bool
}

// Add implements workqueue.TypedInterface.
func (q urgentQueue) Add(req ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, req) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q urgentQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	for _, req := range requests {
		with := o
		if q.urgent(req) {
			with.Priority = new(first)
		}
		q.PriorityQueue.AddWithOpts(with, req)
	}
}
