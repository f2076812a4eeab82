// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
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
func open(o Options) (socket, error) {
	nl, err := netlink.Dial(unix.NETLINK_CONNECTOR, nil)
	if err != nil {
		return nil, unavailable(missing(err), err)
	}
	s, err := prepare(nl, !o.Unfiltered)
	if err = errors.Join(err, nl.Close()); err != nil {
		if s != nil {
			_ = s.close()
		}
		return nil, unavailable(missing(err), err)
	}
	s.now = o.Now
	return s, nil
}

// prepare sets the options of the socket, and takes it over.
func prepare(nl *netlink.Conn, filtered bool) (*netlinkSocket, error) {
	if filtered {
		program, err := filter(os.Getpid())
		if err != nil {
			return nil, err
		}
		if err := nl.SetBPF(program); err != nil {
			return nil, fmt.Errorf("attaching filter: %w", err)
		}
	}
	// The library forces the size where it may and else takes what it gets. A
	// small buffer overruns more often, which is noticed and repaired.
	_ = nl.SetReadBuffer(receiveBuffer)
	if err := nl.JoinGroup(idxProc); err != nil {
		return nil, fmt.Errorf("joining group: %w", err)
	}
	return takeOver(nl)
}

// takeOver duplicates the descriptor of the library's connection, which is then
// closed. The library's Receive peeks, allocates and copies, at ten times the
// cost; and as long as its descriptor is with the runtime's poller, every event
// wakes a thread there, also while we pause in order not to be woken.
func takeOver(nl *netlink.Conn) (*netlinkSocket, error) {
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching descriptor: %w", err)
	}
	var fd int
	var dupErr error
	if err := raw.Control(func(original uintptr) {
		fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil || dupErr != nil {
		return nil, fmt.Errorf("duplicating descriptor: %w", errors.Join(err, dupErr))
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	s := &netlinkSocket{fd: fd, wake: wake}
	s.ready[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}   //nolint:gosec // a descriptor fits
	s.ready[1] = unix.PollFd{Fd: int32(wake), Events: unix.POLLIN} //nolint:gosec // a descriptor fits
	return s, nil
}

// netlinkSocket waits by poll(2) and reads by read(2), without blocking.
type netlinkSocket struct {
	now func() time.Time
	fd  int
	// wake is readable once the socket is to be closed.
	wake int

	// mu is held by who uses the descriptors, so that they are not closed, and
	// their numbers given to others, under a reader.
	mu     sync.Mutex
	ready  [2]unix.PollFd
	closed bool

	// pauses counts the pauses, which only the reader makes.
	pauses uint
}

func (s *netlinkSocket) drain(deadline time.Time, buf []byte, take func([]byte) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		got, err := s.readAll(buf, take)
		if got || err != nil {
			return err
		}
		if err := s.await(deadline); err != nil {
			return err
		}
	}
	return net.ErrClosed
}

// readAll reads until the queue is empty or take refuses.
func (s *netlinkSocket) readAll(buf []byte, take func([]byte) bool) (got bool, err error) {
	for {
		n, errno := unix.Read(s.fd, buf)
		switch errno {
		case nil:
			got = true
			if !take(buf[:n]) {
				return got, err
			}
		case unix.EAGAIN:
			return got, err
		case unix.EINTR:
		case unix.ENOBUFS:
			// Reported once for an overflow; what is still queued is sound.
			err = ErrOverrun
		default:
			return got, os.NewSyscallError("read", errno)
		}
	}
}

// await waits until there is something to read, the deadline, or close.
func (s *netlinkSocket) await(deadline time.Time) error {
	left := time.Duration(0)
	if !deadline.IsZero() {
		left = deadline.Sub(s.now())
	}
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	// Rounded up: waking a little early would spin.
	ms := min((left+time.Millisecond-1)/time.Millisecond, time.Hour/time.Millisecond)
	if _, err := unix.Poll(s.ready[:], int(ms)); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	s.closed = s.ready[1].Revents != 0
	return nil
}

func (s *netlinkSocket) send(b []byte) error {
	_, err := unix.Write(s.fd, b)
	return os.NewSyscallError("write", err)
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

// pause sleeps in the kernel without telling the runtime, and every third time
// tells the scheduler that it still runs. A timer would wake another thread. A
// sleep that the runtime knows of has its monitor look every 20 us whether to
// take the processor away, and so has a goroutine that does not yield for 10 ms
// (runtime, retake). At 500 pauses a second either costs more than the events do.
func (s *netlinkSocket) pause(d time.Duration) {
	if s.pauses++; s.pauses%3 == 0 {
		runtime.Gosched()
	}
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) //nolint:gosec // nanosleep(2) takes a pointer to a timespec
}

// close unblocks a drain, and waits for it.
func (s *netlinkSocket) close() error {
	_, err := unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 1})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(err, unix.Close(s.fd), unix.Close(s.wake))
}

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
