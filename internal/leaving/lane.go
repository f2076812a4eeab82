// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// A lane is where a step is called: as many calls at the same time as there are places,
// and the others in the order in which they came. One step does not take another's
// places, however slow it is. A Desk's lock guards it.
type lane struct {
	running map[*call]bool
	line    []*call
}

// A call is one call of a step.
type call struct {
	run, cancel func()
}

// enter has c run when it is its turn.
func (d *Desk) enter(step types.UID, c *call) {
	l := d.lanes[step]
	if l == nil {
		l = &lane{running: map[*call]bool{}}
		d.lanes[step] = l
	}
	l.line = append(l.line, c)
	d.serve(step, l)
}

// serve begins the calls for which there is a place.
func (d *Desk) serve(step types.UID, l *lane) {
	for len(l.running) < Places && len(l.line) > 0 {
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
	if len(l.running) == 0 && d.lanes[step] == l {
		delete(d.lanes, step)
	}
}

// leave takes a call out of the line.
func (l *lane) leave(c *call) {
	if i := slices.Index(l.line, c); i >= 0 {
		l.line = slices.Delete(l.line, i, i+1)
	}
}

// close cancels all calls.
func (l *lane) close() {
	for c := range l.running {
		c.cancel()
	}
	for _, c := range l.line {
		c.cancel()
	}
	l.line = nil
}
