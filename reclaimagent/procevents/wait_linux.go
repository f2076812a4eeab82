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

// waiter waits for a descriptor, or for some time, at the cost of one wake-up.
//
// The usual ways of Go cost more. A blocking system call costs about fifty wake-ups of the runtime's monitor thread,
// which checks every 20 us. A timer with millisecond resolution wakes too early and then again. A descriptor in the
// runtime's poller wakes a thread for every event, even while no goroutine waits. So the poller gets an epoll instance,
// which contains the descriptor, while it is wanted, and a timerfd.
type waiter struct {
	// file is the epoll instance. conn is its raw connection.
	file *os.File
	conn syscall.RawConn
	// fd is the descriptor, timer the timerfd.
	fd, timer int
	// wanted means that epoll watches fd. deadline is the current read deadline of file.
	wanted   bool
	deadline time.Time
	// expired and apply are the method values readTimer and applyWanted, stored because a method value allocates.
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
	// The runtime polls only descriptors that do not block.
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

// assemble adds both descriptors to the epoll instance, which the runtime polls.
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
	// This fails if the runtime does not poll the file.
	return w.file.SetReadDeadline(time.Time{})
}

// await calls done whenever data is available, until it returns true. After the deadline it returns
// [os.ErrDeadlineExceeded].
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

// sleep waits for d. Data on the descriptor does not wake it.
func (w *waiter) sleep(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if w.want(false) != nil || unix.TimerfdSettime(w.timer, 0, &spec, nil) != nil {
		return
	}
	if err := w.conn.Read(w.expired); errors.Is(err, os.ErrDeadlineExceeded) {
		// The deadline was for the next await, which sets it again.
		w.deadline = time.Time{}
		_ = w.file.SetReadDeadline(w.deadline)
	}
}

// want adds the descriptor to the poll, or removes it.
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

// wake ends the current wait and all later ones.
func (w *waiter) wake() error { return w.file.Close() }

// close must be called after wake.
func (w *waiter) close() error { return unix.Close(w.timer) }
