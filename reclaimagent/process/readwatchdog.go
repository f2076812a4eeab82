// SPDX-License-Identifier: Apache-2.0

package process

import (
	"math"
	"sync/atomic"
	"time"
)

// readTimeout is the time limit for a read of arguments. A read takes microseconds unless the process has been swapped
// out. A blocked reader is abandoned after one to two of these.
const readTimeout = 100 * time.Millisecond

// abandoned is the state of a watchdog whose goroutine was abandoned.
const abandoned = math.MaxUint64

// readWatchdog guards the reads of arguments of one goroutine. A read may block forever. To run every read in another
// thread would cost one or two wake-ups per started program. So the goroutine reads itself, and a timer detects a
// blocked read; another goroutine then takes over. The timer runs only while reads happen, so that it never wakes an
// idle machine.
type readWatchdog struct {
	hungProcesses *HungProcesses
	// state counts starts and ends of reads: it is odd during a read.
	state atomic.Uint64
	pid   atomic.Int32

	watched atomic.Bool
	timer   *time.Timer
	// last is the state at the previous tick. Only the timer uses it.
	last uint64
	// hung is closed when the goroutine is abandoned.
	hung chan struct{}
}

func newReadWatchdog(a *HungProcesses) *readWatchdog {
	w := &readWatchdog{hungProcesses: a, hung: make(chan struct{})}
	w.watched.Store(true)
	w.timer = time.AfterFunc(readTimeout, w.watch)
	return w
}

// begin marks the start of a read. It does not allocate.
func (w *readWatchdog) begin(pid int32) (reading uint64) {
	w.pid.Store(pid)
	reading = w.state.Add(1)
	if !w.watched.Load() && w.watched.CompareAndSwap(false, true) {
		w.timer.Reset(readTimeout)
	}
	return reading
}

// end marks the end of a read. It returns false if the goroutine was abandoned in the meantime; the goroutine must then
// not use the table any more.
func (w *readWatchdog) end(reading uint64) bool {
	if w.state.CompareAndSwap(reading, reading+1) {
		return true
	}
	w.hungProcesses.remove(w, true)
	return false
}

// watch is the timer's function. A read that lasts for two ticks is blocked.
func (w *readWatchdog) watch() {
	state := w.state.Load()
	switch {
	case state != w.last:
	case state%2 == 1:
		// Add it first: an abandoned goroutine removes it when its read ends.
		w.hungProcesses.put(w.pid.Load(), w)
		if w.state.CompareAndSwap(state, abandoned) {
			close(w.hung)
			return
		}
		w.hungProcesses.remove(w, false)
	default:
		w.watched.Store(false)
		if w.state.Load() == state || !w.watched.CompareAndSwap(false, true) {
			return
		}
	}
	w.last = state
	w.timer.Reset(readTimeout)
}
