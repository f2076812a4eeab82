// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"hash/maphash"
	"io/fs"
)

// Bounds for the open files of a table. An open comm file costs the kernel a page, which counts towards the agent's
// memory limit, so its bound is lower.
const (
	maxOpenCmdline = 8192
	maxOpenComm    = 2048
)

// WalkResult counts the processes of a walk by result.
type WalkResult struct {
	// Processes were visited, or are known to be clean.
	Processes int
	// Gone ended between the listing and the read.
	Gone int
	// Denied could not be read because of permissions.
	Denied int
}

// Walk visits all processes except the calling one, in ascending order of PID. It returns an error only if the list of
// processes cannot be read.
func (t *Table) Walk(visit Visit) (WalkResult, error) {
	return t.each(func(pid int32) error { return t.visitPID(pid, false, visit) })
}

// Rewalk is Walk for repeated calls. It keeps files open between walks, and visits a clean process only after a change.
// It reads the name and the arguments of every process each time, because exec changes neither PID nor start time.
func (t *Table) Rewalk(visit Visit) (WalkResult, error) {
	f := &t.files
	if f.byPID == nil {
		f.byPID, f.seed = make(map[int32]*processFiles), maphash.MakeSeed()
	}
	f.round++
	c, err := t.each(func(pid int32) error { return t.revisit(pid, visit) })
	for pid, e := range f.byPID {
		if err == nil && e.round != f.round { // The process has ended.
			f.remove(t.root, pid, e)
		}
	}
	return c, err
}

func (t *Table) each(visitOne func(pid int32) error) (WalkResult, error) {
	var err error
	if t.list, err = t.root.pids(t.list[:0]); err != nil {
		return WalkResult{}, err
	}
	var c WalkResult
	for _, pid := range t.list {
		if pid == t.self {
			continue
		}
		switch err := visitOne(pid); {
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

// openFiles holds the state between two calls of Rewalk.
type openFiles struct {
	byPID map[int32]*processFiles
	// comms counts the open comm files.
	comms int
	round uint32
	seed  maphash.Seed
}

// processFiles is a process with open files. Reads return ESRCH after the process has ended, even if its PID was
// reused.
type processFiles struct {
	cmdline, comm handle
	hasComm       bool
	round         uint32
	clean         bool
	// sum is the hash of name and arguments at the last visit.
	sum uint64
}

func (f *openFiles) remove(r root, pid int32, e *processFiles) {
	r.shut(e.cmdline)
	if e.hasComm {
		r.shut(e.comm)
		f.comms--
	}
	delete(f.byPID, pid)
}

// open opens a process and stores it. It returns nil if the bound is reached, which is no error: revisit then opens the
// process each time.
func (f *openFiles) open(r root, pid int32) (*processFiles, error) {
	if len(f.byPID) >= maxOpenCmdline {
		return nil, nil
	}
	h, err := r.open(pid, cmdlineFile)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, gone(pid, err)
		}
		return nil, nil // Most likely EMFILE. visitPID will return the error.
	}
	e := &processFiles{cmdline: h}
	if f.comms < maxOpenComm {
		if e.comm, err = r.open(pid, commFile); err == nil {
			e.hasComm = true
			f.comms++
		}
	}
	f.byPID[pid] = e
	return e, nil
}

// revisit checks one process again. If the stored process has ended, it opens the PID again, because another process
// may have it.
func (t *Table) revisit(pid int32, visit Visit) error {
	if e := t.files.byPID[pid]; e != nil {
		err := t.check(pid, e, visit)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		t.files.remove(t.root, pid, e)
	}
	e, err := t.files.open(t.root, pid)
	switch {
	case err != nil:
		return err
	case e == nil:
		return t.visitPID(pid, false, visit)
	}
	if err := t.check(pid, e, visit); err != nil {
		t.files.remove(t.root, pid, e)
		return err
	}
	return nil
}

// check reads the name and the arguments, which exec and renaming change. It skips a process that was found clean and
// whose name and arguments have not changed since. It visits all others.
func (t *Table) check(pid int32, e *processFiles, visit Visit) error {
	comm, err := t.commOf(pid, e)
	if err != nil {
		return err
	}
	e.round = t.files.round
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
	// A command line that fills the buffer may have changed beyond it.
	whole := n < len(t.head)
	sum := t.files.sum(comm, t.head[:n])
	if e.clean && whole && sum == e.sum {
		return nil
	}
	t.visited = Process{t: t, pid: pid, comm: comm, read: n, cmdline: e.cmdline}
	e.clean, e.sum = visit(&t.visited), sum
	return nil
}

func (t *Table) commOf(pid int32, e *processFiles) ([]byte, error) {
	if !e.hasComm {
		return t.readComm(pid)
	}
	return t.peekComm(pid, e.comm)
}

// sum returns a hash of name and arguments. The seed is random, so that a command line cannot be crafted to collide
// with another.
func (f *openFiles) sum(comm, argv []byte) uint64 {
	const multiplier = 0x9e3779b97f4a7c15
	return maphash.Bytes(f.seed, comm)*multiplier ^ maphash.Bytes(f.seed, argv)
}
