// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// A callQueue is the queue of one step: at most MaxConcurrentCalls calls run, the others wait in order of arrival. A
// slow step cannot take the places of another. The lock of the BackgroundCalls guards it.
type callQueue struct {
	running map[*call]bool
	waiting []*call
}

// A call is one call of a step.
type call struct {
	run, cancel func()
}

// enter queues c and starts it if a place is free.
func (b *BackgroundCalls) enter(step types.UID, c *call) {
	q := b.queues[step]
	if q == nil {
		q = &callQueue{running: map[*call]bool{}}
		b.queues[step] = q
	}
	q.waiting = append(q.waiting, c)
	b.serve(step, q)
}

// serve starts queued calls while places are free.
func (b *BackgroundCalls) serve(step types.UID, q *callQueue) {
	for len(q.running) < MaxConcurrentCalls && len(q.waiting) > 0 {
		c := q.waiting[0]
		q.leave(c)
		q.running[c] = true
		go func() {
			c.run()
			c.cancel()
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(q.running, c)
			b.serve(step, q)
		}()
	}
	if len(q.running) == 0 && b.queues[step] == q {
		delete(b.queues, step)
	}
}

// leave removes a call from the queue.
func (q *callQueue) leave(c *call) {
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// close cancels all calls.
func (q *callQueue) close() {
	for c := range q.running {
		c.cancel()
	}
	for _, c := range q.waiting {
		c.cancel()
	}
	q.waiting = nil
}
