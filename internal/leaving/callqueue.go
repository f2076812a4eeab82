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
	line    []*call
}

// A call is one call of a step.
type call struct {
	run, cancel func()
}

// enter queues c and starts it if a place is free.
func (d *HookCaller) enter(step types.UID, c *call) {
	l := d.queues[step]
	if l == nil {
		l = &callQueue{running: map[*call]bool{}}
		d.queues[step] = l
	}
	l.line = append(l.line, c)
	d.serve(step, l)
}

// serve starts queued calls while places are free.
func (d *HookCaller) serve(step types.UID, l *callQueue) {
	for len(l.running) < MaxConcurrentCalls && len(l.line) > 0 {
		c := l.line[0]
		l.leave(c)
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

// leave removes a call from the queue.
func (l *callQueue) leave(c *call) {
	if i := slices.Index(l.line, c); i >= 0 {
		l.line = slices.Delete(l.line, i, i+1)
	}
}

// close cancels all calls.
func (l *callQueue) close() {
	for c := range l.running {
		c.cancel()
	}
	for _, c := range l.line {
		c.cancel()
	}
	l.line = nil
}
