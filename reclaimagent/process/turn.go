// SPDX-License-Identifier: Apache-2.0

package process

import (
	"math"
	"sync/atomic"
	"time"
)

// patience is how long it may take to read arguments, which takes microseconds
// unless the process has been swapped out. A reader is left behind after one to
// two of these.
const patience = 100 * time.Millisecond

// abandoned is the state of a turn whose goroutine was left behind.
const abandoned = math.MaxUint64

// A turn is one goroutine's reading of arguments. It reads by itself, because to
// hand over every reading to another thread would cost a wake-up or two for every
// program that starts; instead another goroutine takes over from one that hangs.
// The timer runs only while something is read: an idle machine is left alone.
type turn struct {
	aside *Aside
	// state counts the begins and the ends of readings: it is odd during one.
	state atomic.Uint64
	pid   atomic.Int32

	watched atomic.Bool
	timer   *time.Timer
	// last is the state that the timer met last. It belongs to the timer.
	last uint64
	// hung is closed when the goroutine is left behind.
	hung chan struct{}
}

func newTurn(a *Aside) *turn {
	t := &turn{aside: a, hung: make(chan struct{})}
	t.watched.Store(true)
	t.timer = time.AfterFunc(patience, t.watch)
	return t
}

// begin says that a reading begins. It does not allocate.
func (t *turn) begin(pid int32) (reading uint64) {
	t.pid.Store(pid)
	reading = t.state.Add(1)
	if !t.watched.Load() && t.watched.CompareAndSwap(false, true) {
		t.timer.Reset(patience)
	}
	return reading
}

// end says that a reading is over. It reports false to a goroutine that was left
// behind meanwhile, which must touch nothing any more.
func (t *turn) end(reading uint64) bool {
	if t.state.CompareAndSwap(reading, reading+1) {
		return true
	}
	t.aside.remove(t, true)
	return false
}

// watch is called by the timer. A reading that it meets twice hangs.
func (t *turn) watch() {
	state := t.state.Load()
	switch {
	case state != t.last:
	case state%2 == 1:
		// Put aside first: whoever finds out that it was left behind takes it out.
		t.aside.put(t.pid.Load(), t)
		if t.state.CompareAndSwap(state, abandoned) {
			close(t.hung)
			return
		}
		t.aside.remove(t, false)
	default:
		t.watched.Store(false)
		if t.state.Load() == state || !t.watched.CompareAndSwap(false, true) {
			return
		}
	}
	t.last = state
	t.timer.Reset(patience)
}
