// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// receiveBuffer holds 10,000 execs: three seconds of a storm of 3000 a second
// while the agent gets no CPU. The default holds 256.
const receiveBuffer = 4 << 20

// open returns a socket that has joined the group of the proc connector. The
// filter is in place before the first event can arrive.
func open(filtered bool) (socket, error) {
	nl, err := netlink.Dial(unix.NETLINK_CONNECTOR, nil)
	if err != nil {
		return nil, unavailable(missing(err), err)
	}
	s := &netlinkSocket{nl: nl}
	if err := s.prepare(filtered); err != nil {
		_ = nl.Close()
		return nil, unavailable(missing(err), err)
	}
	return s, nil
}

// netlinkSocket reads by read(2) on the library's descriptor: the library's own
// Receive peeks, allocates and copies, which costs ten times as much.
type netlinkSocket struct {
	nl  *netlink.Conn
	raw syscall.RawConn
	// deadline is the one that is set, to set it only when it changes.
	deadline time.Time

	// What follows belongs to one drain; reading is readAll, made once.
	reading func(fd uintptr) bool
	buf     []byte
	take    func([]byte) bool
	wait    bool
	got     bool
	overrun bool
	err     error
}

func (s *netlinkSocket) prepare(filtered bool) error {
	if filtered {
		program, err := filter(os.Getpid())
		if err != nil {
			return err
		}
		if err := s.nl.SetBPF(program); err != nil {
			return fmt.Errorf("attaching filter: %w", err)
		}
	}
	// The library forces the size where it may and else takes what it gets. A
	// small buffer overruns more often, which is noticed and repaired.
	_ = s.nl.SetReadBuffer(receiveBuffer)
	if err := s.nl.JoinGroup(idxProc); err != nil {
		return fmt.Errorf("joining group: %w", err)
	}
	raw, err := s.nl.SyscallConn()
	if err != nil {
		return fmt.Errorf("reaching descriptor: %w", err)
	}
	s.raw, s.reading = raw, s.readAll
	return nil
}

func (s *netlinkSocket) drain(deadline time.Time, buf []byte, take func([]byte) bool) error {
	s.buf, s.take, s.got, s.overrun, s.err = buf, take, false, false, nil
	s.wait = !deadline.IsZero()
	if !deadline.Equal(s.deadline) {
		if err := s.nl.SetReadDeadline(deadline); err != nil {
			return err
		}
		s.deadline = deadline
	}
	err := s.raw.Read(s.reading)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The runtime does not even try once the time has come.
		return s.drain(time.Time{}, buf, take)
	}
	switch {
	case err != nil:
		return err
	case s.err != nil:
		return s.err
	case s.overrun:
		return ErrOverrun
	case !s.got && !s.wait:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// readAll reads until the queue is empty. It returns false to be called again
// when there is something to read.
func (s *netlinkSocket) readAll(fd uintptr) bool {
	for {
		n, err := unix.Read(int(fd), s.buf)
		switch err {
		case nil:
			s.got = true
			if !s.take(s.buf[:n]) {
				return true
			}
		case unix.EAGAIN:
			return s.got || s.overrun || !s.wait
		case unix.EINTR:
		case unix.ENOBUFS:
			// Reported once for an overflow; what is still queued is sound.
			s.overrun = true
		default:
			s.err = os.NewSyscallError("read", err)
			return true
		}
	}
}

func (s *netlinkSocket) send(b []byte) error {
	var sent error
	err := s.raw.Write(func(fd uintptr) bool {
		_, sent = unix.Write(int(fd), b)
		return true
	})
	return errors.Join(err, os.NewSyscallError("write", sent))
}

// rename sets the name that the thread already has, so nobody sees a change; the
// kernel announces it all the same (kernel/sys.c, PR_SET_NAME).
func (*netlinkSocket) rename() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var name [16]byte
	for _, op := range [...]uintptr{unix.PR_GET_NAME, unix.PR_SET_NAME} {
		_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, op, uintptr(unsafe.Pointer(&name[0])), 0) //nolint:gosec // prctl(2) takes a pointer to 16 bytes
		if errno != 0 {
			return os.NewSyscallError("prctl", errno)
		}
	}
	return nil
}

// pause sleeps in the kernel: a timer of the runtime would wake another thread.
func (*netlinkSocket) pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

func (s *netlinkSocket) close() error { return s.nl.Close() }

// Inodes of the initial namespaces, <linux/proc_ns.h>. Elsewhere the kernel
// ignores requests without a word.
const (
	initialUser = "user:[4026531837]"
	initialPID  = "pid:[4026531836]"
)

// whySilent says why a request may have been ignored.
func whySilent() string {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns != initialPID {
		return "the pid namespace of the host (hostPID: true)"
	}
	if ns, err := os.Readlink("/proc/self/ns/user"); err == nil && ns != initialUser {
		return "the user namespace of the host (hostUsers: true)"
	}
	return "a kernel with the option CONFIG_PROC_EVENTS, in the pid and user namespaces of the host"
}
