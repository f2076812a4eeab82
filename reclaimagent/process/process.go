// SPDX-License-Identifier: Apache-2.0

// Package process reads the processes of a machine from /proc: their names, arguments, start times, and whether they
// belong to a pod or a container. It does not know the patterns.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"syscall"
)

// The files of a process that are read, below /proc/<pid>. See proc(5).
const (
	commFile    = "comm"
	cmdlineFile = "cmdline"
	statFile    = "stat"
	cgroupFile  = "cgroup"
)

// headSize is the size of one read of a command line or cgroup file. Longer command lines need more reads, not more
// memory.
const headSize = 16 << 10

// root is the source of the process files. A handle stays bound to the process for which it was opened.
type root interface {
	pids(dst []int32) ([]int32, error)
	// threads appends the threads of a process.
	threads(dst []int32, pid int32) ([]int32, error)
	// open opens a file below the directory of a process.
	open(pid int32, name string) (handle, error)
	// read may block on the process.
	read(h handle, buf []byte, off int64) (int, error)
	// peek reads from the start of a file that never blocks.
	peek(h handle, buf []byte) (int, error)
	shut(h handle)
	// hiding returns the mount options that hide processes, empty for none.
	hiding() string
	close() error
}

// handle is an open file: a descriptor or an fs.File, depending on the root.
type handle struct {
	fd   int
	file fs.File
}

// Table is the processes below one root. It is not safe for concurrent use. It reuses its buffers, so the data of a
// visit is valid only during the visit, and only until a call of [Table.Info].
//
// A read of arguments may block forever. A caller that must not block uses the table in a separate goroutine. After
// [Table.Hung] is closed, it continues in another goroutine with the result of [Table.TakeOver].
type Table struct {
	root root
	self int32
	// alive reports whether a process exists, without its files. Nil means that this is unknown.
	alive func(pid int32) bool
	// initCgroup is the cgroup file of process 1. See contained.
	initCgroup []byte

	list, tids []int32
	head       []byte
	comm       [64]byte
	// visited is the process of the current visit; it is stored here so that a visit does not allocate.
	visited Process

	files openFiles

	hungProcesses *HungProcesses
	watchdog      *readWatchdog
}

// FromFS returns the processes below fsys, which must have the layout of /proc. self is the calling process, which is
// never visited. Zero means that it is not among them.
func FromFS(fsys fs.FS, self int) *Table {
	return newTable(fsRoot{fsys}, int32(self)) //nolint:gosec // a pid fits: PID_MAX_LIMIT is 1<<22
}

func newTable(r root, self int32) *Table {
	t := &Table{root: r, self: self, head: make([]byte, headSize)}
	t.Share(&HungProcesses{})
	if cgroup, err := t.readHead(1, cgroupFile); err == nil {
		t.initCgroup = bytes.Clone(cgroup)
	}
	return t
}

// Share makes the table use a shared HungProcesses. Call it before any other method.
func (t *Table) Share(a *HungProcesses) { t.hungProcesses, t.watchdog = a, newReadWatchdog(a) }

// HungProcesses returns the processes whose arguments block readers.
func (t *Table) HungProcesses() *HungProcesses { return t.hungProcesses }

// Hung returns a channel that is closed when the goroutine that uses the table is blocked. The process is among the
// HungProcesses by then. When the blocked read returns, that goroutine exits without using the table.
func (t *Table) Hung() <-chan struct{} { return t.watchdog.hung }

// TakeOver returns the table for the goroutine that takes over after [Table.Hung]. It shares everything with the old
// table except the read buffer.
func (t *Table) TakeOver() *Table {
	next := *t
	next.head, next.watchdog = make([]byte, headSize), newReadWatchdog(t.hungProcesses)
	if st, err := next.readStat(t.watchdog.pid.Load()); err == nil {
		t.hungProcesses.identify(t.watchdog, st.start)
	}
	return &next
}

// Close closes all open files.
func (t *Table) Close() error {
	for pid, e := range t.files.byPID {
		t.files.remove(t.root, pid, e)
	}
	return t.root.close()
}

// Self returns the PID of the calling process, zero if it is not among the processes.
func (t *Table) Self() int { return int(t.self) }

// Process is the process of a visit.
type Process struct {
	t    *Table
	pid  int32
	comm []byte

	// read is how many bytes of the command line are in t.head, -1 for none. cmdline is the file with the remaining
	// bytes.
	read    int
	cmdline handle
	// started means that the process has just started a program, so that its first thread runs.
	started bool
}

// PID returns the process ID.
func (p *Process) PID() int { return int(p.pid) }

// Comm returns the kernel's name of the process.
func (p *Process) Comm() []byte { return p.comm }

// Feeder receives a command line in pieces.
type Feeder interface{ Feed(piece []byte) }

// Argv passes the arguments to the Feeder, in the kernel's format: a NUL follows each argument. Kernel threads have
// none. The error is [fs.ErrNotExist] if the process has ended. It is another error if a read would block.
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

// feed passes the n bytes in the buffer, and then the remaining ones from h. A read that does not fill the buffer is
// the last one: the kernel returns less only at the end (fs/proc/base.c, get_mm_cmdline).
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

// feedThread passes the arguments of a process whose first thread has ended while others run. The files of the process
// are then empty, and the files of the other threads are not.
func (t *Table) feedThread(p *Process, to Feeder) error {
	st, err := t.readStat(p.pid)
	if err != nil || st.state != 'Z' || st.dead() {
		return nil //nolint:nilerr // a kernel thread, or a process that has ended
	}
	if t.tids, err = t.root.threads(t.tids[:0], p.pid); err != nil {
		return gone(p.pid, err)
	}
	for _, tid := range t.tids {
		if fed, err := t.feedOneThread(p, tid, to); fed {
			return err
		}
	}
	return nil
}

// feedOneThread passes the arguments of one thread. fed is false if they are empty or the thread has ended. An
// abandoned read exits the goroutine, and the file is closed then, too.
func (t *Table) feedOneThread(p *Process, tid int32, to Feeder) (fed bool, err error) {
	h, err := t.root.open(p.pid, "task/"+strconv.Itoa(int(tid))+"/"+cmdlineFile)
	if err != nil {
		return false, err
	}
	defer t.root.shut(h)
	n, err := t.readArguments(p.pid, h, 0)
	if err != nil || n == 0 {
		return false, err
	}
	return true, t.feed(p, h, n, to)
}

// readArguments reads a part of a command line. It does not return if its goroutine was abandoned in the meantime,
// because the buffer belongs to the successor.
func (t *Table) readArguments(pid int32, h handle, off int64) (int, error) {
	reading := t.watchdog.begin(pid)
	n, err := t.root.read(h, t.head, off)
	if !t.watchdog.end(reading) {
		runtime.Goexit()
	}
	return n, err
}

// readable reports whether to read the arguments of a process. While any process is hung, arguments of pods'
// processes are not read: they never count, and the number of blocked readers is limited.
func (t *Table) readable(pid int32) bool {
	if t.hungProcesses.Len() == 0 {
		return true
	}
	admitted := t.hungProcesses.admits(pid, func() uint64 {
		st, _ := t.readStat(pid) // zero equals no start time
		return st.start
	})
	if !admitted {
		return false
	}
	cgroup, err := t.readHead(pid, cgroupFile)
	return err != nil || !contained(cgroup, t.initCgroup)
}

// Visit evaluates one process. It returns true if the process is clean: it need not be visited again until its name or
// arguments change.
type Visit func(p *Process) (clean bool)

// VisitPID visits the process pid. The error is [fs.ErrNotExist] if it has ended, which is common after an event of the
// kernel. VisitPID does not visit the calling process.
func (t *Table) VisitPID(pid int, visit Visit) error {
	return t.visitPID(int32(pid), false, visit) //nolint:gosec // a pid fits
}

// VisitStarted is VisitPID for a process that has just started a program. It saves one read if the process has ended.
func (t *Table) VisitStarted(pid int, visit Visit) error {
	return t.visitPID(int32(pid), true, visit) //nolint:gosec // a pid fits
}

func (t *Table) visitPID(pid int32, started bool, visit Visit) error {
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

// Alive reports whether the process exists, even if its files are hidden. It returns false if that is unknown.
func (t *Table) Alive(pid int) bool {
	return t.alive != nil && t.alive(int32(pid)) //nolint:gosec // a pid fits
}

// Info is the data that decides whether a matching process counts.
type Info struct {
	// Start is the start time of the process in clock ticks since boot. Together with the PID it identifies the
	// process; exec does not change it. Zero means unknown.
	Start uint64
	// Contained means that the process belongs to a pod or a container, or is a helper of the kubelet or a container
	// runtime.
	Contained bool
}

// Info returns the Info of the process pid. The error is [fs.ErrNotExist] if the process has ended, also if it
// is a zombie.
//
// The order of the reads matters. With cgroup version 1, a dying process leaves its cgroup, and its parent may end. So
// only a later proof that the process lives confirms the earlier reads.
func (t *Table) Info(pid int) (Info, error) {
	id := int32(pid) //nolint:gosec // a pid fits
	cgroup, err := t.readHead(id, cgroupFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Info{}, err
	}
	s := Info{Contained: contained(cgroup, t.initCgroup)}
	if !s.Contained {
		s.Contained, err = t.isRuntimeHelper(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Info{}, err
		}
	}
	st, err := t.readStat(id)
	switch {
	case errors.Is(err, errMalformed):
		return Info{}, err
	case err != nil:
		// In a proc root without stat files, such as a recorded one, the name proves that the process lives.
		if _, err := t.readComm(id); err != nil {
			return Info{}, err
		}
		return s, nil
	case st.dead():
		return Info{}, gone(id, fs.ErrNotExist)
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

// readHead reads the start of a file that does not block on its process. It may block on the machine's cgroup lock.
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

// gone maps ESRCH, which /proc returns if a process ends between open and read, to fs.ErrNotExist. That error is a
// fixed value, because it is too frequent to allocate.
func gone(pid int32, err error) error {
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

var errGone = fmt.Errorf("process: %w", fs.ErrNotExist)
