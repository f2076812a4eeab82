// SPDX-License-Identifier: Apache-2.0

// Package leaving runs the calls to extensions and the checks of built-in steps before a Machine leaves. It
// runs them in the background and in parallel, so a slow one blocks neither another nor a worker of a
// controller.
//
// A controller starts a call with HookCaller.StartCall, and reads the latest response with HookCaller.Look. The package
// does not interpret responses. All state is in memory: after a restart the calls are made again.
package leaving

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// MaxConcurrentCalls is the maximum number of concurrent calls to one step. Further calls are queued. HTTP/2 servers
// allow 100 or 250 concurrent streams per connection, and other clients may share it.
const MaxConcurrentCalls = 50

// A CallKey identifies a call: the machine, the step (an extension or a built-in step), and the phase of the
// departure.
type CallKey struct {
	Machine, Step types.UID
	Phase         string
}

// A Response is the response to a call. The zero value means that the step is done.
type Response struct {
	// Wait is the delay until the next call, zero if the step is done.
	Wait time.Duration
	// Says is what the step waits for, or why the Machine does not wait.
	Says string
	// Missed reports that the step stopped waiting before it was done: a deadline of its own passed, or the Node does
	// not respond.
	Missed bool
	// SkipDrain and SkipVolumeDetach report which waits of Cluster API are unnecessary.
	SkipDrain, SkipVolumeDetach bool
	// Err is why the call failed.
	Err error
}

// Progress is the state of a CallKey. The zero value means that no call was made.
type Progress struct {
	// Asked is when the first call was requested. Answered is when the latest response came, zero if none came.
	Asked, Answered time.Time
	// Answer is the latest response.
	Answer Response
	// Open reports that a call is queued or running.
	Open bool
}

// A HookCaller makes calls in the background and stores the latest response to each. It is safe for concurrent use.
type HookCaller struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	wake     func(machine types.NamespacedName)
	machines map[types.UID]map[CallKey]*entry
	queues   map[types.UID]*callQueue
}

// entry is the state of a CallKey.
type entry struct {
	Progress
	// version is the generation of the step that was called.
	version int64
	// call is the open call, nil if none is.
	call *call
}

// New returns an empty HookCaller.
func New(c clock.PassiveClock) *HookCaller {
	return &HookCaller{
		clock: c, wake: func(types.NamespacedName) {},
		machines: map[types.UID]map[CallKey]*entry{}, queues: map[types.UID]*callQueue{},
	}
}

// Start sets the function that is called after each response, with the machine of the call. When ctx is done,
// the HookCaller cancels all calls and drops all state.
func (d *HookCaller) Start(ctx context.Context, wake func(machine types.NamespacedName)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake = wake
	context.AfterFunc(ctx, d.stop)
}

func (d *HookCaller) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for step := range d.queues {
		d.forget(step)
	}
	clear(d.machines)
}

// Look returns the state of a CallKey for this version of the step. A response to another version is dropped,
// and its call is cancelled.
func (d *HookCaller) Look(q CallKey, version int64) Progress {
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

// StartCall queues a call and returns at once. It does nothing while a call for the same CallKey is open. The context
// of ask ends when the CallKey is dropped, when Look requests a new version of the step, and at the end of the
// HookCaller.
func (d *HookCaller) StartCall(ctx context.Context, machine types.NamespacedName, q CallKey, version int64, ask func(context.Context) Response) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machines[q.Machine] == nil {
		d.machines[q.Machine] = map[CallKey]*entry{}
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

// Notify queues one call without a response. Its context ends after limit, which includes the time in the queue.
// Only ForgetStep and the end of the HookCaller cancel it.
func (d *HookCaller) Notify(ctx context.Context, step types.UID, limit time.Duration, tell func(context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	d.enter(step, &call{cancel: cancel, run: func() { tell(ctx) }})
}

// answered stores the response to a call, unless the call was cancelled.
func (d *HookCaller) answered(machine types.NamespacedName, e *entry, c *call, a Response) {
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

// RetainSteps drops the state of all calls of a machine except the ones of these steps in this phase, and cancels the
// dropped calls.
func (d *HookCaller) RetainSteps(machine types.UID, phase string, steps ...types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for q, e := range d.machines[machine] {
		if q.Phase != phase || !slices.Contains(steps, q.Step) {
			d.drop(q, e)
		}
	}
}

// ForgetMachine drops the state of all calls of a machine, and cancels them.
func (d *HookCaller) ForgetMachine(machine types.UID) { d.RetainSteps(machine, "") }

// ForgetStep drops a deleted step, and cancels its calls.
func (d *HookCaller) ForgetStep(step types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(step)
}

func (d *HookCaller) forget(step types.UID) {
	for _, questions := range d.machines {
		for q, e := range questions {
			if q.Step == step {
				d.drop(q, e)
			}
		}
	}
	if l := d.queues[step]; l != nil {
		delete(d.queues, step)
		l.close()
	}
}

func (d *HookCaller) drop(q CallKey, e *entry) {
	d.cancel(q, e)
	delete(d.machines[q.Machine], q)
	if len(d.machines[q.Machine]) == 0 {
		delete(d.machines, q.Machine)
	}
}

// cancel cancels the open call of an entry.
func (d *HookCaller) cancel(q CallKey, e *entry) {
	c := e.call
	if c == nil {
		return
	}
	e.call, e.Open = nil, false
	c.cancel()
	if l := d.queues[q.Step]; l != nil {
		l.leave(c)
	}
}
