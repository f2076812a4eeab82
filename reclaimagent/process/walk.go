// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"hash/maphash"
	"io/fs"
)

// Bounds of what a table keeps open. A kept comm costs the kernel a page, which
// counts towards the agent's memory limit, so far fewer of those are kept.
const (
	maxKeptCmdline = 8192
	maxKeptComm    = 2048
)

// A Census says what a walk met.
type Census struct {
	// Processes were visited or known to be clean.
	Processes int
	// Gone ended between the listing and the reading.
	Gone int
	// Denied may not be read.
	Denied int
}

// Walk visits all processes but the one that asks, in ascending order of pid.
// The error is about the root, never about one process.
func (t *Table) Walk(visit Visit) (Census, error) {
	return t.each(func(pid int32) error { return t.look(pid, false, visit) })
}

// Rewalk is Walk for one who comes often. Files stay open from one walk to the
// next, and a clean process is visited only after a change. Both the name and
// the arguments of every process are read every time: exec changes neither the
// pid nor the start time, so nothing else tells.
func (t *Table) Rewalk(visit Visit) (Census, error) {
	t.keeper.begin()
	c, err := t.each(func(pid int32) error { return t.revisit(pid, visit) })
	if err == nil {
		t.keeper.sweep(t.root)
	}
	return c, err
}

func (t *Table) each(look func(pid int32) error) (Census, error) {
	var err error
	if t.list, err = t.root.pids(t.list[:0]); err != nil {
		return Census{}, err
	}
	var c Census
	for _, pid := range t.list {
		if pid == t.self {
			continue
		}
		switch err := look(pid); {
		case err == nil:
			c.Processes++
		case errors.Is(err, fs.ErrNotExist):
			c.Gone++
		case errors.Is(err, fs.ErrPermission):
			c.Denied++
		}
	}
	return c, nil
}

// A keeper holds what one walk leaves to the next.
type keeper struct {
	kept map[int32]*kept
	// comms counts the comm files among what is kept.
	comms int
	round uint32
	seed  maphash.Seed
}

// kept is an open process. Its descriptors answer ESRCH once it is gone, even if
// its pid has been given to another.
type kept struct {
	cmdline, comm handle
	hasComm       bool
	round         uint32
	clean         bool
	// sum is over the name and the arguments when clean was decided.
	sum uint64
}

func (k *keeper) begin() {
	if k.kept == nil {
		k.kept, k.seed = make(map[int32]*kept), maphash.MakeSeed()
	}
	k.round++
}

// sweep gives up what the last walk did not meet.
func (k *keeper) sweep(r root) {
	for pid, e := range k.kept {
		if e.round != k.round {
			k.forget(r, pid, e)
		}
	}
}

func (k *keeper) drop(r root) {
	for pid, e := range k.kept {
		k.forget(r, pid, e)
	}
}

func (k *keeper) forget(r root, pid int32, e *kept) {
	r.shut(e.cmdline)
	if e.hasComm {
		r.shut(e.comm)
		k.comms--
	}
	delete(k.kept, pid)
}

// keep opens a process to be kept. It returns nil if there is no room, which is
// not an error: the process is then opened every time.
func (k *keeper) keep(r root, pid int32) (*kept, error) {
	if len(k.kept) >= maxKeptCmdline {
		return nil, nil
	}
	h, err := r.open(pid, cmdlineFile)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, gone(pid, err)
		}
		return nil, nil // most likely EMFILE; the lean way finds out
	}
	e := &kept{cmdline: h}
	if k.comms < maxKeptComm {
		if e.comm, err = r.open(pid, commFile); err == nil {
			e.hasComm = true
			k.comms++
		}
	}
	k.kept[pid] = e
	return e, nil
}

// revisit looks at one process again. A kept one whose descriptor says it is
// gone is given up and its pid tried anew, because it may have been reused.
func (t *Table) revisit(pid int32, visit Visit) error {
	if e := t.keeper.kept[pid]; e != nil {
		err := t.check(pid, e, visit)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		t.keeper.forget(t.root, pid, e)
	}
	e, err := t.keeper.keep(t.root, pid)
	switch {
	case err != nil:
		return err
	case e == nil:
		return t.look(pid, false, visit)
	}
	if err := t.check(pid, e, visit); err != nil {
		t.keeper.forget(t.root, pid, e)
		return err
	}
	return nil
}

// check reads what exec and renaming change, and visits unless it is the same
// as when the process was found clean.
func (t *Table) check(pid int32, e *kept, visit Visit) error {
	comm, err := t.keptComm(pid, e)
	if err != nil {
		return err
	}
	e.round = t.keeper.round
	if !t.readable(pid) {
		t.visited = Process{t: t, pid: pid, comm: comm, read: -1}
		visit(&t.visited)
		e.clean = false
		return nil
	}
	n, err := t.readArguments(pid, e.cmdline, 0)
	if err != nil {
		return gone(pid, err)
	}
	// A command line that fills the buffer may differ in what is beyond it.
	whole := n < len(t.head)
	sum := t.keeper.sum(comm, t.head[:n])
	if e.clean && whole && sum == e.sum {
		return nil
	}
	t.visited = Process{t: t, pid: pid, comm: comm, read: n, cmdline: e.cmdline}
	e.clean, e.sum = visit(&t.visited), sum
	return nil
}

func (t *Table) keptComm(pid int32, e *kept) ([]byte, error) {
	if !e.hasComm {
		return t.readComm(pid)
	}
	return t.peekComm(pid, e.comm)
}

// sum tells states of a process apart. The seed is random, so nobody can craft
// a command line that is taken for another.
func (k *keeper) sum(comm, argv []byte) uint64 {
	const odd = 0x9e3779b97f4a7c15
	return maphash.Bytes(k.seed, comm)*odd ^ maphash.Bytes(k.seed, argv)
}
