// SPDX-License-Identifier: Apache-2.0

// Package process answers one question: which processes are there, and what are
// they called? It reads /proc and knows nothing about patterns.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// The files of a process that are read, below /proc/<pid>. See proc(5).
const (
	commFile    = "comm"
	cmdlineFile = "cmdline"
	statFile    = "stat"
	cgroupFile  = "cgroup"
)

// headSize is how much of a command line, or of a cgroup file, one read takes.
// Longer command lines take more reads, not more memory.
const headSize = 16 << 10

// A root is a place where processes are described by files. Handles stay bound
// to the process they were opened for.
type root interface {
	pids(dst []int32) ([]int32, error)
	open(pid int32, name string) (handle, error)
	pread(h handle, buf []byte, off int64) (int, error)
	shut(h handle)
	close() error
}

// A handle is an open file of a root: a descriptor or a file, as the root has it.
type handle struct {
	fd   int
	file fs.File
}

// A Table is the processes below one root. It reuses its buffers: it belongs to
// one goroutine, and what a visit sees is valid during the visit only, until it
// asks for a [Table.Standing].
type Table struct {
	root root
	self int32
	// ownComm is the name of the program that asks, empty if unknown.
	ownComm []byte
	// initCgroup is the cgroup file of process 1. See contained.
	initCgroup []byte

	list []int32
	head []byte
	comm [64]byte
	// visited is the process of the visit at hand; a visit does not allocate.
	visited Process

	keeper keeper
}

// FromFS returns the processes below fsys, which has the layout of /proc. self
// is the process that asks and is never visited; zero if it is not among them.
func FromFS(fsys fs.FS, self int) *Table {
	return newTable(fsRoot{fsys}, int32(self)) //nolint:gosec // a pid fits: PID_MAX_LIMIT is 1<<22
}

func newTable(r root, self int32) *Table {
	t := &Table{root: r, self: self, head: make([]byte, headSize)}
	if comm, err := t.readComm(self); err == nil && self != 0 {
		t.ownComm = bytes.Clone(comm)
	}
	if cgroup, err := t.readHead(1, cgroupFile); err == nil {
		t.initCgroup = bytes.Clone(cgroup)
	}
	return t
}

// Close gives up what the table holds open.
func (t *Table) Close() error {
	t.keeper.drop(t.root)
	return t.root.close()
}

// Self returns the process that asks, zero if it is not among the processes.
func (t *Table) Self() int { return int(t.self) }

// A Process is what a visit sees of one process.
type Process struct {
	t    *Table
	pid  int32
	comm []byte

	// read is how much of the command line is in t.head already, -1 for none;
	// cmdline is where the rest comes from.
	read    int
	cmdline handle
}

// PID returns the process id.
func (p *Process) PID() int { return int(p.pid) }

// Comm returns the kernel's name of the process.
func (p *Process) Comm() []byte { return p.comm }

// Kin reports whether the process runs the program that asks, by its name. The
// arguments of another agent, such as a check run by hand, name patterns without
// being what they name.
func (p *Process) Kin() bool { return len(p.comm) > 0 && bytes.Equal(p.comm, p.t.ownComm) }

// A Feeder takes a command line in pieces.
type Feeder interface{ Feed(piece []byte) }

// Argv feeds the arguments as the kernel gives them, each followed by a NUL.
// Kernel threads have none. A process that is gone is [fs.ErrNotExist].
func (p *Process) Argv(to Feeder) error {
	if p.read >= 0 {
		to.Feed(p.t.head[:p.read])
		return p.t.feedRest(p.cmdline, int64(p.read), to)
	}
	h, err := p.t.root.open(p.pid, cmdlineFile)
	if err != nil {
		return gone(p.pid, err)
	}
	defer p.t.root.shut(h)
	n, err := p.t.root.pread(h, p.t.head, 0)
	if err != nil {
		return gone(p.pid, err)
	}
	to.Feed(p.t.head[:n])
	return p.t.feedRest(h, int64(n), to)
}

// feedRest goes on at off. A read that does not fill the buffer was the last:
// the kernel returns less only at the end (fs/proc/base.c, get_mm_cmdline).
func (t *Table) feedRest(h handle, off int64, to Feeder) error {
	for n := int(off); n == len(t.head); {
		var err error
		if n, err = t.root.pread(h, t.head, off); err != nil {
			return fmt.Errorf("reading arguments: %w", err)
		}
		to.Feed(t.head[:n])
		off += int64(n)
	}
	return nil
}

// A Visit decides about one process. It reports whether the process is clean,
// that is, need not be visited again until its name or its arguments change.
type Visit func(p *Process) (clean bool)

// Look visits the process pid. One that is gone, which after a message from the
// kernel is the common case and not a failure, is [fs.ErrNotExist]. The process
// that asks is not visited.
func (t *Table) Look(pid int, visit Visit) error {
	return t.look(int32(pid), visit) //nolint:gosec // a pid fits
}

func (t *Table) look(pid int32, visit Visit) error {
	if pid == t.self {
		return nil
	}
	comm, err := t.readComm(pid)
	if err != nil {
		return err
	}
	t.visited = Process{t: t, pid: pid, comm: comm, read: -1}
	visit(&t.visited)
	return nil
}

// A Standing is what decides whether a process that matches counts.
type Standing struct {
	// Start is when the process started, in clock ticks since boot; with the
	// pid it tells processes apart. Zero means unknown. Exec changes neither.
	Start uint64
	// Contained says that the process belongs to a pod or a container.
	Contained bool
}

// Standing returns the standing of the process pid. A process that is gone, or
// is dead and only waits for its parent, is [fs.ErrNotExist].
//
// The order of the reads matters: a dying process leaves its cgroup on version
// 1, so only the proof of life that comes after makes its cgroup the true one.
func (t *Table) Standing(pid int) (Standing, error) {
	id := int32(pid) //nolint:gosec // a pid fits
	cgroup, err := t.readHead(id, cgroupFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Standing{}, err
	}
	s := Standing{Contained: contained(cgroup, t.initCgroup)}
	raw, err := t.readHead(id, statFile)
	if err != nil {
		// A proc root without stat files, such as a recorded one, proves life
		// by the name alone.
		if _, err := t.readComm(id); err != nil {
			return Standing{}, err
		}
		return s, nil
	}
	st, err := parseStat(raw)
	if err != nil {
		return Standing{}, fmt.Errorf("process %d: %w", pid, err)
	}
	if st.dead() {
		return Standing{}, gone(id, fs.ErrNotExist)
	}
	s.Start = st.start
	return s, nil
}

func (t *Table) readComm(pid int32) ([]byte, error) {
	n, err := t.readFile(pid, commFile, t.comm[:])
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(t.comm[:n], []byte{'\n'}), nil
}

func (t *Table) readHead(pid int32, name string) ([]byte, error) {
	n, err := t.readFile(pid, name, t.head)
	if err != nil {
		return nil, err
	}
	return t.head[:n], nil
}

func (t *Table) readFile(pid int32, name string, buf []byte) (int, error) {
	h, err := t.root.open(pid, name)
	if err != nil {
		return 0, gone(pid, err)
	}
	defer t.root.shut(h)
	n, err := t.root.pread(h, buf, 0)
	if err != nil {
		return 0, gone(pid, err)
	}
	return n, nil
}

// gone folds ESRCH, which /proc returns when a process dies between open and
// read, into fs.ErrNotExist, so that callers test for one thing. The error of a
// process that is gone is a fixed value: it is too common to allocate for.
func gone(pid int32, err error) error {
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

var errGone = fmt.Errorf("process: %w", fs.ErrNotExist)
