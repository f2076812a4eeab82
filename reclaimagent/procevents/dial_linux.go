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

// receiveBuffer is the socket buffer in bytes. It holds 10,000 execs: three seconds with 3000 execs per second while
// the agent gets no CPU. The default holds 256.
const receiveBuffer = 4 << 20

// open returns a socket that has joined the group of the proc connector. The filter is set before the first event can
// arrive.
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

// prepare sets the socket options and calls takeOver.
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
	// The library exceeds the system's limit if it has the capability; otherwise, the buffer is smaller. A small buffer
	// overruns more often, which the agent detects and repairs.
	_ = nl.SetReadBuffer(receiveBuffer)
	if err := nl.JoinGroup(idxProc); err != nil {
		return nil, fmt.Errorf("joining group: %w", err)
	}
	return takeOver(nl)
}

// takeOver duplicates the descriptor of the library's connection, which the caller then closes. The library's Receive
// peeks, allocates and copies, at ten times the cost. Also, its descriptor is in the runtime's poller, so that every
// event would wake a thread, even in a pause.
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
	w, err := newWaiter(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	s := &netlinkSocket{waiter: w, fd: fd}
	s.arrived = s.readArrived
	return s, nil
}

// netlinkSocket reads without blocking, and uses a waiter to wait.
type netlinkSocket struct {
	*waiter
	now func() time.Time
	fd  int

	// mu is held while the descriptors are used, so that close cannot close them, and their numbers cannot be reused,
	// during a read.
	mu     sync.Mutex
	closed bool

	// arrived is the method value readArrived, stored because a method value allocates. buf and take are its input, got
	// and err its result.
	arrived func(uintptr) bool
	buf     []byte
	take    func([]byte) bool
	got     bool
	err     error
}

func (s *netlinkSocket) drain(deadline time.Time, buf []byte, take func([]byte) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.buf, s.take = buf, take
	if s.readArrived(0) {
		return s.err
	}
	if deadline.IsZero() || !s.now().Before(deadline) {
		return os.ErrDeadlineExceeded
	}
	if err := s.await(deadline, s.arrived); err != nil {
		return err
	}
	return s.err
}

// readArrived reads until the queue is empty or take returns false. It reports whether there was data or an error.
func (s *netlinkSocket) readArrived(uintptr) bool {
	for s.got, s.err = false, nil; ; {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(s.buf))), uintptr(len(s.buf))) //nolint:gosec // never blocks
		switch errno {
		case 0:
			s.got = true
			if !s.take(s.buf[:n]) {
				return true
			}
		case unix.EAGAIN:
			return s.got || s.err != nil
		case unix.EINTR:
		case unix.ENOBUFS:
			// The kernel reports an overflow once; the queued datagrams are valid.
			s.err = ErrOverrun
		default:
			s.err = os.NewSyscallError("read", errno)
			return true
		}
	}
}

func (s *netlinkSocket) send(b []byte) error {
	_, err := unix.Write(s.fd, b)
	return os.NewSyscallError("write", err)
}

// rename sets the name that the thread already has. The kernel announces it anyway (kernel/sys.c, PR_SET_NAME).
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

func (s *netlinkSocket) pause(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.sleep(d)
	}
}

// close unblocks a drain or a pause, and waits for it.
func (s *netlinkSocket) close() error {
	err := s.wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(err, unix.Close(s.fd), s.waiter.close())
}

// Inodes of the initial namespaces, <linux/proc_ns.h>. In other namespaces the kernel ignores requests silently.
const (
	initialUser = "user:[4026531837]"
	initialPID  = "pid:[4026531836]"
)

// silenceReason returns the probable reason why the kernel ignored a request.
func silenceReason() string {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns != initialPID {
		return "the pid namespace of the host (hostPID: true)"
	}
	if ns, err := os.Readlink("/proc/self/ns/user"); err == nil && ns != initialUser {
		return "the user namespace of the host (hostUsers: true)"
	}
	return "a kernel with the option CONFIG_PROC_EVENTS, in the pid and user namespaces of the host"
}
