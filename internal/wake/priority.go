// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
			return firstQueue{p}
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

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// firstQueue is a queue that adds every request with the priority first.
type firstQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
}

// Add implements workqueue.TypedInterface.
func (q firstQueue) Add(req ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, req) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q firstQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	o.Priority = new(first)
	q.PriorityQueue.AddWithOpts(o, requests...)
}
