// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// A callQueue is the queue of one step: at most MaxConcurrentCalls calls run, the others wait in order of arrival. A
// slow step cannot take the places of another. The lock of the HookCaller guards it.
type callQueue struct {
	running map[*call]bool
	waiting []*call
}

// A call is one call of a step.
type call struct {
	run, cancel func()
}

// enqueue queues c and starts it if a place is free.
func (d *HookCaller) enqueue(step types.UID, c *call) {
	l := d.queues[step]
	if l == nil {
		l = &callQueue{running: map[*call]bool{}}
		d.queues[step] = l
	}
	l.waiting = append(l.waiting, c)
	d.serve(step, l)
}

// serve starts queued calls while places are free.
func (d *HookCaller) serve(step types.UID, l *callQueue) {
	for len(l.running) < MaxConcurrentCalls && len(l.waiting) > 0 {
		c := l.waiting[0]
		l.remove(c)
		l.running[c] = true
		go func() {
			c.run()
			c.cancel()
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(l.running, c)
			d.serve(step, l)
		}()
	}
	if len(l.running) == 0 && d.queues[step] == l {
		delete(d.queues, step)
	}
}

// remove removes a call from the queue.
func (l *callQueue) remove(c *call) {
	if i := slices.Index(l.waiting, c); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// close cancels all calls.
func (l *callQueue) close() {
	for c := range l.running {
		c.cancel()
	}
	for _, c := range l.waiting {
		c.cancel()
	}
	l.waiting = nil
}
