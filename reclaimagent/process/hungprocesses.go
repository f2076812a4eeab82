// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// maxHung bounds the threads that are blocked in a read of arguments. Each needs a stack and a buffer, about 40 KiB of
// the agent's memory limit.
const maxHung = 32

// errHung means that arguments are not read, because a read would block, or because maxHung threads are blocked.
var errHung = errors.New("arguments cannot be read without waiting")

// HungProcesses holds the processes whose arguments block every reader. An example is a process that waits for a file
// server while it holds the lock of its address space. A HungProcesses is shared by several tables, because blocked
// readers outlive their table. It is safe for concurrent use; the zero value is empty.
type HungProcesses struct {
	// n is the number of processes, for a check without the lock.
	n atomic.Int32

	mu        sync.Mutex
	hung      []hung
	recovered []int
}

// hung is a process and the watchdog of the blocked read. start distinguishes it from a later process with the same
// PID; zero is unknown.
type hung struct {
	pid      int32
	start    uint64
	watchdog *readWatchdog
}

// Len returns the number of processes.
func (a *HungProcesses) Len() int { return int(a.n.Load()) }

// PIDs returns the PIDs of the processes.
func (a *HungProcesses) PIDs() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	pids := make([]int, 0, len(a.hung))
	for _, h := range a.hung {
		pids = append(pids, int(h.pid))
	}
	return pids
}

// Recovered returns, once, the processes whose arguments could be read in the end. They were not visited in the
// meantime.
func (a *HungProcesses) Recovered() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	recovered := a.recovered
	a.recovered = nil
	return recovered
}

func (a *HungProcesses) put(pid int32, w *readWatchdog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hung = append(a.hung, hung{pid: pid, watchdog: w})
	a.n.Add(1)
}

// identify sets the start time of a process that was added without it.
func (a *HungProcesses) identify(w *readWatchdog, start uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.hung {
		if a.hung[i].watchdog == w {
			a.hung[i].start = start
		}
	}
}

// remove removes the process of this watchdog's blocked read, if it is there.
func (a *HungProcesses) remove(w *readWatchdog, recovered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.hung, func(h hung) bool { return h.watchdog == w })
	if i < 0 {
		return
	}
	if recovered {
		a.recovered = append(a.recovered, int(a.hung[i].pid))
	}
	a.hung = slices.Delete(a.hung, i, i+1)
	a.n.Add(-1)
}

// admits reports whether the arguments of a process may be read. It calls start only if necessary.
func (a *HungProcesses) admits(pid int32, start func() uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.hung) >= maxHung {
		return false
	}
	for _, h := range a.hung {
		if h.pid == pid && (h.start == 0 || h.start == start()) {
			return false
		}
	}
	return true
}
