// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A waiter waits for a descriptor, or for some time, at the cost of one wake-up.
//
// The Go runtime has dearer ways. A system call that blocks costs some fifty
// wake-ups of its monitor thread, which looks every 20 us whether to take the
// processor away; a timer, in milliseconds, wakes too early and then again. And a
// descriptor that is with the runtime's poller wakes a thread for every event, also
// while nobody wants to know. So the poller gets an epoll instance of ours, in
// which there are the descriptor, while it is wanted, and a timer.
type waiter struct {
	// file is the epoll instance, and conn its descriptor.
	file *os.File
	conn syscall.RawConn
	// fd is the descriptor, timer a timerfd.
	fd, timer int
	// wanted says that fd is looked at, and deadline is the one that file has.
	wanted   bool
	deadline time.Time
	// expired and apply are readTimer and applyWanted, made once.
	expired func(uintptr) bool
	apply   func(uintptr)
	failed  error
}

func newWaiter(fd int) (*waiter, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	// The runtime polls what does not block.
	if err := unix.SetNonblock(epoll, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(epoll), unix.Close(timer))
	}
	w := &waiter{file: os.NewFile(uintptr(epoll), "epoll"), fd: fd, timer: timer, wanted: true}
	w.expired, w.apply = w.readTimer, w.applyWanted
	if err := w.assemble(); err != nil {
		return nil, errors.Join(err, w.wake(), w.close())
	}
	return w, nil
}

// assemble puts both into the epoll instance, which is with the poller.
func (w *waiter) assemble() error {
	var err error
	if w.conn, err = w.file.SyscallConn(); err != nil {
		return err
	}
	controlErr := w.conn.Control(func(epoll uintptr) {
		for _, fd := range []int{w.fd, w.timer} {
			err = errors.Join(err, unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}))
		}
	})
	if err := errors.Join(err, controlErr); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	// Only a file that is with the poller has deadlines.
	return w.file.SetReadDeadline(time.Time{})
}

// await waits until done reports true, which it is asked whenever there is
// something to read, or until the deadline, which is [os.ErrDeadlineExceeded].
func (w *waiter) await(deadline time.Time, done func(uintptr) bool) error {
	if err := w.want(true); err != nil {
		return err
	}
	if !deadline.Equal(w.deadline) {
		w.deadline = deadline
		if err := w.file.SetReadDeadline(deadline); err != nil {
			return err
		}
	}
	return w.conn.Read(done)
}

// sleep waits for d, not to be woken by the descriptor.
func (w *waiter) sleep(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if w.want(false) != nil || unix.TimerfdSettime(w.timer, 0, &spec, nil) != nil {
		return
	}
	if err := w.conn.Read(w.expired); errors.Is(err, os.ErrDeadlineExceeded) {
		// That was for whoever awaits next, who says so again.
		w.deadline = time.Time{}
		_ = w.file.SetReadDeadline(w.deadline)
	}
}

// want has the poller look at the descriptor, or not.
func (w *waiter) want(wanted bool) error {
	if w.wanted == wanted {
		return nil
	}
	w.wanted = wanted
	if err := w.conn.Control(w.apply); err != nil {
		return err
	}
	return os.NewSyscallError("epoll_ctl", w.failed)
}

func (w *waiter) applyWanted(epoll uintptr) {
	event := unix.EpollEvent{}
	if w.wanted {
		event.Events = unix.EPOLLIN
	}
	w.failed = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, w.fd, &event)
}

// readTimer reports whether the timer has expired.
func (w *waiter) readTimer(uintptr) bool {
	var times [8]byte
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(w.timer), uintptr(unsafe.Pointer(&times[0])), uintptr(len(times))) //nolint:gosec // never blocks
	return errno == 0
}

// wake ends a wait, and all that come after.
func (w *waiter) wake() error { return w.file.Close() }

// close is for after wake.
func (w *waiter) close() error { return unix.Close(w.timer) }
