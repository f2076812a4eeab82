// SPDX-License-Identifier: Apache-2.0

// Package leaving answers one question: what do those say who are asked before a
// machine leaves? It asks side by side: nobody waits for what another is asked, and no
// worker of a controller waits for an answer. It does not know what an answer means.
// What it knows may be lost at any time: it is then asked again.
package leaving

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Places is how many machines one step is asked about at the same time; who comes then
// waits in line. Servers of HTTP/2 take 100 or 250 calls on one connection, and those of
// others may share it.
const Places = 50

// A Question is what a step is asked about a machine in a phase of its departure.
type Question struct {
	Machine, Step types.UID
	Phase         string
}

// An Answer is what a step says. The zero value lets the machine go.
type Answer struct {
	// Wait is how long the step wants to wait before it is asked again.
	Wait time.Duration
	// Says is what it waits for, or why it was not waited for.
	Says string
	// Missed says that a Machine that it lets go was not waited for who had missed a deadline.
	Missed bool
	// SkipDrain and SkipVolumeDetach say what Cluster API need not wait for.
	SkipDrain, SkipVolumeDetach bool
	// Err is why there is no answer.
	Err error
}

// Progress is how far a Question has come. The zero value is one that nobody asked.
type Progress struct {
	// Asked is when it was first asked, and Answered when the last answer came: zero if
	// none did.
	Asked, Answered time.Time
	// Answer is the last one.
	Answer Answer
	// Open says that it waits for its turn, or for an answer.
	Open bool
}

// A Desk asks. It is safe for concurrent use.
type Desk struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	wake     func(machine types.NamespacedName)
	machines map[types.UID]map[Question]*entry
	lanes    map[types.UID]*lane
}

// entry is what is known of a Question.
type entry struct {
	Progress
	// version of the step was asked.
	version int64
	// call is the one that is open.
	call *call
}

// New returns a Desk that has asked nothing.
func New(c clock.PassiveClock) *Desk {
	return &Desk{
		clock: c, wake: func(types.NamespacedName) {},
		machines: map[types.UID]map[Question]*entry{}, lanes: map[types.UID]*lane{},
	}
}

// Start has wake called after each answer, with the machine that it is about. Once ctx
// is done, all is forgotten, and calls are cancelled.
func (d *Desk) Start(ctx context.Context, wake func(machine types.NamespacedName)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake = wake
	context.AfterFunc(ctx, d.stop)
}

func (d *Desk) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for step := range d.lanes {
		d.forget(step)
	}
	clear(d.machines)
}

// Look returns how far a Question has come that this version of the step was asked.
// What another version said does not count, and its call is cancelled.
func (d *Desk) Look(q Question, version int64) Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.machines[q.Machine][q]
	if e == nil {
		return Progress{}
	}
	if e.version != version {
		d.cancel(q, e)
		*e = entry{Progress: Progress{Asked: e.Asked}, version: version}
	}
	return e.Progress
}

// Ask has the step asked as soon as it is its turn, and returns at once. It does
// nothing while an earlier call is open. ask is called with a context that ends when the
// Question is forgotten.
func (d *Desk) Ask(ctx context.Context, machine types.NamespacedName, q Question, version int64, ask func(context.Context) Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machines[q.Machine] == nil {
		d.machines[q.Machine] = map[Question]*entry{}
	}
	e := d.machines[q.Machine][q]
	if e == nil {
		e = &entry{Progress: Progress{Asked: d.clock.Now()}}
		d.machines[q.Machine][q] = e
	}
	if e.Open {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{cancel: cancel}
	c.run = func() { d.answered(machine, e, c, ask(ctx)) }
	e.version, e.call, e.Open = version, c, true
	d.enter(q.Step, c)
}

// Tell has the step called once, as soon as it is its turn and until limit has passed.
// Nobody is woken, and only Forget takes it back.
func (d *Desk) Tell(ctx context.Context, step types.UID, limit time.Duration, tell func(context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	d.enter(step, &call{cancel: cancel, run: func() { tell(ctx) }})
}

// answered keeps the answer to a call, unless nobody waits for it any more.
func (d *Desk) answered(machine types.NamespacedName, e *entry, c *call, a Answer) {
	d.mu.Lock()
	current := e.call == c
	if current {
		e.Answered, e.Answer, e.Open, e.call = d.clock.Now(), a, false, nil
	}
	wake := d.wake
	d.mu.Unlock()
	if current {
		wake(machine)
	}
}

// Keep forgets all about a machine but what these steps are asked in this phase, and
// cancels what is open.
func (d *Desk) Keep(machine types.UID, phase string, steps ...types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for q, e := range d.machines[machine] {
		if q.Phase != phase || !slices.Contains(steps, q.Step) {
			d.drop(q, e)
		}
	}
}

// Drop forgets all about a machine, and cancels what is open.
func (d *Desk) Drop(machine types.UID) { d.Keep(machine, "") }

// Forget forgets a step that is gone, and cancels what is open.
func (d *Desk) Forget(step types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(step)
}

func (d *Desk) forget(step types.UID) {
	for _, questions := range d.machines {
		for q, e := range questions {
			if q.Step == step {
				d.drop(q, e)
			}
		}
	}
	if l := d.lanes[step]; l != nil {
		delete(d.lanes, step)
		l.close()
	}
}

func (d *Desk) drop(q Question, e *entry) {
	d.cancel(q, e)
	delete(d.machines[q.Machine], q)
	if len(d.machines[q.Machine]) == 0 {
		delete(d.machines, q.Machine)
	}
}

// cancel takes the open call of an entry back.
func (d *Desk) cancel(q Question, e *entry) {
	c := e.call
	if c == nil {
		return
	}
	e.call, e.Open = nil, false
	c.cancel()
	if l := d.lanes[q.Step]; l != nil {
		l.leave(c)
	}
}
