// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// maxHung bounds the threads that wait for arguments which do not come. Each
// costs a stack and a buffer, some 40 KiB, of the agent's memory limit.
const maxHung = 32

// errHung is why arguments are not read: they hang whoever reads them, or so many
// do that there is no room for one more.
var errHung = errors.New("arguments cannot be read without waiting")

// An Aside holds the processes whose arguments hang whoever reads them, as those
// of a process that waits for a file server do: nobody gets at the memory of a
// process that holds its lock. It outlives tables, because the readers that are
// left behind do. Any number of goroutines may use it; the zero Aside is empty.
type Aside struct {
	// n is how many there are, for those who only ask whether there are any.
	n atomic.Int32

	mu   sync.Mutex
	hung []hung
	back []int
}

// hung is a process and the turn that hangs. The start tells it from one that
// gets its pid; zero is unknown.
type hung struct {
	pid   int32
	start uint64
	turn  *turn
}

// Len returns how many processes there are.
func (a *Aside) Len() int { return int(a.n.Load()) }

// PIDs returns which processes there are.
func (a *Aside) PIDs() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	pids := make([]int, 0, len(a.hung))
	for _, h := range a.hung {
		pids = append(pids, int(h.pid))
	}
	return pids
}

// Back returns, once, the processes that could be read in the end. They were not
// visited meanwhile.
func (a *Aside) Back() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	back := a.back
	a.back = nil
	return back
}

func (a *Aside) put(pid int32, t *turn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hung = append(a.hung, hung{pid: pid, turn: t})
	a.n.Add(1)
}

// identify adds what was not known when the process was put there.
func (a *Aside) identify(t *turn, start uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.hung {
		if a.hung[i].turn == t {
			a.hung[i].start = start
		}
	}
}

// remove takes out the process that a turn hung on, if it is there.
func (a *Aside) remove(t *turn, back bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.hung, func(h hung) bool { return h.turn == t })
	if i < 0 {
		return
	}
	if back {
		a.back = append(a.back, int(a.hung[i].pid))
	}
	a.hung = slices.Delete(a.hung, i, i+1)
	a.n.Add(-1)
}

// admits reports whether the arguments of a process may be read. It asks for the
// start of the process only if it needs it.
func (a *Aside) admits(pid int32, start func() uint64) bool {
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
