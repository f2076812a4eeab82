// SPDX-License-Identifier: Apache-2.0

// Package leaving runs the calls to extensions and the checks of built-in steps before a Machine leaves. It
// runs them in the background and in parallel, so a slow one blocks neither another nor a worker of a
// controller.
//
// A controller starts a call with BackgroundCalls.StartCall, and reads the latest response with BackgroundCalls.Progress.
// The package does not interpret responses. All state is in memory: after a restart the calls are made again.
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
	// Message is what the step waits for, or why the Machine does not wait.
	Message string
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
	// FirstCalled is when the first call was requested. LastAnswered is when the latest response came, zero if none came.
	FirstCalled, LastAnswered time.Time
	// Answer is the latest response.
	Answer Response
	// Open reports that a call is queued or running.
	Open bool
}

// BackgroundCalls runs calls in the background and keeps the last result of each. It is safe for concurrent use.
type BackgroundCalls struct {
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

// New returns BackgroundCalls without calls.
func New(c clock.PassiveClock) *BackgroundCalls {
	return &BackgroundCalls{
		clock: c, wake: func(types.NamespacedName) {},
		machines: map[types.UID]map[CallKey]*entry{}, queues: map[types.UID]*callQueue{},
	}
}

// Start sets the function that is called after each response, with the machine of the call. When ctx is done,
// all calls are cancelled and all state is dropped.
func (b *BackgroundCalls) Start(ctx context.Context, wake func(machine types.NamespacedName)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake = wake
	context.AfterFunc(ctx, b.stop)
}

func (b *BackgroundCalls) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for step := range b.queues {
		b.forget(step)
	}
	clear(b.machines)
}

// Progress returns the state of a CallKey for this version of the step. A response to another version is dropped,
// and its call is cancelled.
func (b *BackgroundCalls) Progress(key CallKey, version int64) Progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.machines[key.Machine][key]
	if e == nil {
		return Progress{}
	}
	if e.version != version {
		b.cancel(key, e)
		*e = entry{Progress: Progress{FirstCalled: e.FirstCalled}, version: version}
	}
	return e.Progress
}

// StartCall queues a call and returns at once. It does nothing while a call for the same CallKey is open. The context
// of send ends when the CallKey is dropped, when Progress requests a new version of the step, and at the end of the
// BackgroundCalls.
func (b *BackgroundCalls) StartCall(ctx context.Context, machine types.NamespacedName, key CallKey, version int64, send func(context.Context) Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.machines[key.Machine] == nil {
		b.machines[key.Machine] = map[CallKey]*entry{}
	}
	e := b.machines[key.Machine][key]
	if e == nil {
		e = &entry{Progress: Progress{FirstCalled: b.clock.Now()}}
		b.machines[key.Machine][key] = e
	}
	if e.Open {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &call{cancel: cancel}
	c.run = func() { b.answered(machine, e, c, send(ctx)) }
	e.version, e.call, e.Open = version, c, true
	b.enter(key.Step, c)
}

// Notify queues one call without a response. Its context ends after limit, which includes the time in the queue.
// Only ForgetStep and the end of the BackgroundCalls cancel it.
func (b *BackgroundCalls) Notify(ctx context.Context, step types.UID, limit time.Duration, notify func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	b.enter(step, &call{cancel: cancel, run: func() { notify(ctx) }})
}

// answered stores the response to a call, unless the call was cancelled.
func (b *BackgroundCalls) answered(machine types.NamespacedName, e *entry, c *call, a Response) {
	b.mu.Lock()
	current := e.call == c
	if current {
		e.LastAnswered, e.Answer, e.Open, e.call = b.clock.Now(), a, false, nil
	}
	wake := b.wake
	b.mu.Unlock()
	if current {
		wake(machine)
	}
}

// RetainSteps drops the state of all calls of a machine except the ones of these steps in this phase, and cancels the
// dropped calls.
func (b *BackgroundCalls) RetainSteps(machine types.UID, phase string, steps ...types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.machines[machine] {
		if key.Phase != phase || !slices.Contains(steps, key.Step) {
			b.drop(key, e)
		}
	}
}

// ForgetMachine drops the state of all calls of a machine, and cancels them.
func (b *BackgroundCalls) ForgetMachine(machine types.UID) { b.RetainSteps(machine, "") }

// ForgetStep drops a deleted step, and cancels its calls.
func (b *BackgroundCalls) ForgetStep(step types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(step)
}

func (b *BackgroundCalls) forget(step types.UID) {
	for _, questions := range b.machines {
		for key, e := range questions {
			if key.Step == step {
				b.drop(key, e)
			}
		}
	}
	if queue := b.queues[step]; queue != nil {
		delete(b.queues, step)
		queue.close()
	}
}

func (b *BackgroundCalls) drop(key CallKey, e *entry) {
	b.cancel(key, e)
	delete(b.machines[key.Machine], key)
	if len(b.machines[key.Machine]) == 0 {
		delete(b.machines, key.Machine)
	}
}

// cancel cancels the open call of an entry.
func (b *BackgroundCalls) cancel(key CallKey, e *entry) {
	c := e.call
	if c == nil {
		return
	}
	e.call, e.Open = nil, false
	c.cancel()
	if queue := b.queues[key.Step]; queue != nil {
		queue.leave(c)
	}
}
