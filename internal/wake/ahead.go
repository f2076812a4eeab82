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

// first is the priority of what an owner waits for. An event of an ordinary change has
// zero, and one that a cache delivers at its start less.
const first = 100

// Ahead has the events of urgent objects overtake everything else that is in the queue.
// Without it, a manager that starts looks at every machine of the fleet before it looks
// at the one whose owner has been waiting since the last one stopped.
func Ahead(h handler.EventHandler, urgent func(client.Object) bool) handler.EventHandler {
	queueFor := func(q queue, obj client.Object) queue {
		if p, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok && obj != nil && urgent(obj) {
			return ahead{p}
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

// ahead adds everything at the front.
type ahead struct {
	priorityqueue.PriorityQueue[ctrl.Request]
}

// Add implements workqueue.TypedInterface.
func (q ahead) Add(req ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, req) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q ahead) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	o.Priority = new(first)
	q.PriorityQueue.AddWithOpts(o, requests...)
}
