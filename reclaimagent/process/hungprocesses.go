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
func (h *HungProcesses) Len() int { return int(h.n.Load()) }

// PIDs returns the PIDs of the processes.
func (h *HungProcesses) PIDs() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	pids := make([]int, 0, len(h.hung))
	for _, p := range h.hung {
		pids = append(pids, int(p.pid))
	}
	return pids
}

// Recovered returns, once, the processes whose arguments could be read in the end. They were not visited in the
// meantime.
func (h *HungProcesses) Recovered() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	recovered := h.recovered
	h.recovered = nil
	return recovered
}

func (h *HungProcesses) put(pid int32, w *readWatchdog) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hung = append(h.hung, hung{pid: pid, watchdog: w})
	h.n.Add(1)
}

// identify sets the start time of a process that was added without it.
func (h *HungProcesses) identify(w *readWatchdog, start uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.hung {
		if h.hung[i].watchdog == w {
			h.hung[i].start = start
		}
	}
}

// remove removes the process of this watchdog's blocked read, if it is there.
func (h *HungProcesses) remove(w *readWatchdog, recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.hung, func(p hung) bool { return p.watchdog == w })
	if i < 0 {
		return
	}
	if recovered {
		h.recovered = append(h.recovered, int(h.hung[i].pid))
	}
	h.hung = slices.Delete(h.hung, i, i+1)
	h.n.Add(-1)
}

// admits reports whether the arguments of a process may be read. It calls start only if necessary.
func (h *HungProcesses) admits(pid int32, start func() uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.hung) >= maxHung {
		return false
	}
	for _, p := range h.hung {
		if p.pid == pid && (p.start == 0 || p.start == start()) {
			return false
		}
	}
	return true
}
