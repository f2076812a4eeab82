// SPDX-License-Identifier: Apache-2.0

// Package process answers one question: which processes are there, and what are
// they called? It reads /proc and knows nothing about patterns.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
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
	// threads appends the threads of a process.
	threads(dst []int32, pid int32) ([]int32, error)
	open(pid int32, name string) (handle, error)
	// openThread opens a file of a thread of a process.
	openThread(pid, tid int32, name string) (handle, error)
	// read may wait for the process that is read about.
	read(h handle, buf []byte, off int64) (int, error)
	// peek reads what the kernel has at hand, from the start.
	peek(h handle, buf []byte) (int, error)
	shut(h handle)
	// hiding returns the mount options that hide processes, empty for none.
	hiding() string
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
//
// Reading arguments may take for ever. Who cannot wait for that uses the table in
// a goroutine of its own, and has another take over, with [Table.Succeed], once
// [Table.Hung] says so.
type Table struct {
	root root
	self int32
	// alive reports whether a process exists, without its files. Nil is unknown.
	alive func(pid int32) bool
	// initCgroup is the cgroup file of process 1. See contained.
	initCgroup []byte

	list, tids []int32
	head       []byte
	comm       [64]byte
	// visited is the process of the visit at hand; a visit does not allocate.
	visited Process

	keeper keeper

	aside *Aside
	turn  *turn
}

// FromFS returns the processes below fsys, which has the layout of /proc. self
// is the process that asks and is never visited; zero if it is not among them.
func FromFS(fsys fs.FS, self int) *Table {
	return newTable(fsRoot{fsys}, int32(self)) //nolint:gosec // a pid fits: PID_MAX_LIMIT is 1<<22
}

func newTable(r root, self int32) *Table {
	t := &Table{root: r, self: self, head: make([]byte, headSize)}
	t.Share(&Aside{})
	if cgroup, err := t.readHead(1, cgroupFile); err == nil {
		t.initCgroup = bytes.Clone(cgroup)
	}
	return t
}

// Share has the table put processes aside together with others. It comes before
// anything else is done with the table.
func (t *Table) Share(a *Aside) { t.aside, t.turn = a, newTurn(a) }

// Aside returns the processes that were put aside.
func (t *Table) Aside() *Aside { return t.aside }

// Hung is closed when the goroutine that uses the table hangs, which ends it as
// soon as it does not: it touches nothing any more. The process is aside by then.
func (t *Table) Hung() <-chan struct{} { return t.turn.hung }

// Succeed returns the table for the goroutine that takes over after [Table.Hung].
// It is the same table but for what is being read into.
func (t *Table) Succeed() *Table {
	next := *t
	next.head, next.turn = make([]byte, headSize), newTurn(t.aside)
	if st, err := next.readStat(t.turn.pid.Load()); err == nil {
		t.aside.identify(t.turn, st.start)
	}
	return &next
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
	// started says that it has just started a program, so its first thread runs.
	started bool
}

// PID returns the process id.
func (p *Process) PID() int { return int(p.pid) }

// Comm returns the kernel's name of the process.
func (p *Process) Comm() []byte { return p.comm }

// A Feeder takes a command line in pieces.
type Feeder interface{ Feed(piece []byte) }

// Argv feeds the arguments as the kernel gives them, each followed by a NUL.
// Kernel threads have none. A process that is gone is [fs.ErrNotExist]; one that
// was put aside is another error.
func (p *Process) Argv(to Feeder) error {
	switch {
	case p.read >= 0:
		return p.t.feed(p, p.cmdline, p.read, to)
	case !p.t.readable(p.pid):
		return fmt.Errorf("process %d: %w", p.pid, errHung)
	}
	var err error
	if p.cmdline, err = p.t.root.open(p.pid, cmdlineFile); err != nil {
		return gone(p.pid, err)
	}
	defer p.t.root.shut(p.cmdline)
	n, err := p.t.readArguments(p.pid, p.cmdline, 0)
	if err != nil {
		return gone(p.pid, err)
	}
	return p.t.feed(p, p.cmdline, n, to)
}

// feed feeds the n bytes that were read, and the rest from h. A read that does not fill
// the buffer was the last: the kernel returns less only at the end (fs/proc/base.c,
// get_mm_cmdline).
func (t *Table) feed(p *Process, h handle, n int, to Feeder) error {
	if n == 0 && !p.started {
		return t.feedThread(p, to)
	}
	to.Feed(t.head[:n])
	for off := int64(n); n == len(t.head); {
		var err error
		if n, err = t.readArguments(p.pid, h, off); err != nil {
			return fmt.Errorf("reading arguments: %w", err)
		}
		to.Feed(t.head[:n])
		off += int64(n)
	}
	return nil
}

// feedThread feeds the arguments of a process whose first thread has ended while others
// run: the files of the process have none any more, and those of the others do.
func (t *Table) feedThread(p *Process, to Feeder) error {
	st, err := t.readStat(p.pid)
	if err != nil || st.state != 'Z' || st.dead() {
		return nil //nolint:nilerr // a kernel thread, or a process that has ended
	}
	if t.tids, err = t.root.threads(t.tids[:0], p.pid); err != nil {
		return gone(p.pid, err)
	}
	for _, tid := range t.tids {
		h, err := t.root.openThread(p.pid, tid, cmdlineFile)
		if err != nil {
			continue // it has ended since
		}
		n, err := t.readArguments(p.pid, h, 0)
		if err == nil && n > 0 {
			err = t.feed(p, h, n, to)
			t.root.shut(h)
			return err
		}
		t.root.shut(h)
	}
	return nil
}

// readArguments reads a part of a command line. It does not return to a goroutine
// that was left behind meanwhile: what that used belongs to its successor.
func (t *Table) readArguments(pid int32, h handle, off int64) (int, error) {
	reading := t.turn.begin(pid)
	n, err := t.root.read(h, t.head, off)
	if !t.turn.end(reading) {
		runtime.Goexit()
	}
	return n, err
}

// readable reports whether to read the arguments of a process. As long as any
// process is aside, those of workloads are not: they never count, and there is
// only so much room, which is the owner's.
func (t *Table) readable(pid int32) bool {
	if t.aside.Len() == 0 {
		return true
	}
	admitted := t.aside.admits(pid, func() uint64 {
		st, _ := t.readStat(pid) // zero is like no other
		return st.start
	})
	if !admitted {
		return false
	}
	cgroup, err := t.readHead(pid, cgroupFile)
	return err != nil || !contained(cgroup, t.initCgroup)
}

// A Visit decides about one process. It reports whether the process is clean,
// that is, need not be visited again until its name or its arguments change.
type Visit func(p *Process) (clean bool)

// Look visits the process pid. One that is gone, which after a message from the
// kernel is the common case and not a failure, is [fs.ErrNotExist]. The process
// that asks is not visited.
func (t *Table) Look(pid int, visit Visit) error {
	return t.look(int32(pid), false, visit) //nolint:gosec // a pid fits
}

// LookAtStarted is Look for a process that has just started a program. It saves a read
// where that has ended by now.
func (t *Table) LookAtStarted(pid int, visit Visit) error {
	return t.look(int32(pid), true, visit) //nolint:gosec // a pid fits
}

func (t *Table) look(pid int32, started bool, visit Visit) error {
	if pid == t.self {
		return nil
	}
	comm, err := t.readComm(pid)
	if err != nil {
		return err
	}
	t.visited = Process{t: t, pid: pid, comm: comm, read: -1, started: started}
	visit(&t.visited)
	return nil
}

// Alive reports whether the process pid exists, also where its files are hidden. Where
// that cannot be known it reports false.
func (t *Table) Alive(pid int) bool {
	return t.alive != nil && t.alive(int32(pid)) //nolint:gosec // a pid fits
}

// A Standing is what decides whether a process that matches counts.
type Standing struct {
	// Start is when the process started, in clock ticks since boot; with the
	// pid it tells processes apart. Zero means unknown. Exec changes neither.
	Start uint64
	// Contained says that the process belongs to a pod or a container, or helps
	// the kubelet or a container runtime.
	Contained bool
}

// Standing returns the standing of the process pid. A process that is gone, or
// is dead and only waits for its parent, is [fs.ErrNotExist].
//
// The order of the reads matters: a dying process leaves its cgroup on version
// 1, and its parent may end, so only the proof of life that comes after makes
// what was read before the truth.
func (t *Table) Standing(pid int) (Standing, error) {
	id := int32(pid) //nolint:gosec // a pid fits
	cgroup, err := t.readHead(id, cgroupFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Standing{}, err
	}
	s := Standing{Contained: contained(cgroup, t.initCgroup)}
	if !s.Contained {
		s.Contained, err = t.helps(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Standing{}, err
		}
	}
	st, err := t.readStat(id)
	switch {
	case errors.Is(err, errMalformed):
		return Standing{}, err
	case err != nil:
		// A proc root without stat files, such as a recorded one, proves life
		// by the name alone.
		if _, err := t.readComm(id); err != nil {
			return Standing{}, err
		}
		return s, nil
	case st.dead():
		return Standing{}, gone(id, fs.ErrNotExist)
	}
	s.Start = st.start
	return s, nil
}

func (t *Table) readStat(pid int32) (stat, error) {
	raw, err := t.readHead(pid, statFile)
	if err != nil {
		return stat{}, err
	}
	st, err := parseStat(raw)
	if err != nil {
		return stat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return st, nil
}

func (t *Table) readComm(pid int32) ([]byte, error) {
	h, err := t.root.open(pid, commFile)
	if err != nil {
		return nil, gone(pid, err)
	}
	defer t.root.shut(h)
	return t.peekComm(pid, h)
}

func (t *Table) peekComm(pid int32, h handle) ([]byte, error) {
	n, err := t.root.peek(h, t.comm[:])
	if err != nil {
		return nil, gone(pid, err)
	}
	return bytes.TrimSuffix(t.comm[:n], []byte{'\n'}), nil
}

// readHead reads a file that does not wait for the process it is about. It may
// wait for others: the cgroups of the machine have one lock.
func (t *Table) readHead(pid int32, name string) ([]byte, error) {
	h, err := t.root.open(pid, name)
	if err != nil {
		return nil, gone(pid, err)
	}
	defer t.root.shut(h)
	n, err := t.root.read(h, t.head, 0)
	if err != nil {
		return nil, gone(pid, err)
	}
	return t.head[:n], nil
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
