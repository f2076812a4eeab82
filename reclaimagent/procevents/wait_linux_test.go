// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waiterOf returns a waiter for the first of two sockets, and a function that reads from it.
func waiterOf(t *testing.T) (w *waiter, other int, read func(uintptr) bool) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err = newWaiter(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.wake()
		for _, fd := range []int{w.timer, pair[0], pair[1]} {
			_ = unix.Close(fd)
		}
	})
	return w, pair[1], func(uintptr) bool { _, err := unix.Read(pair[0], make([]byte, 8)); return err == nil }
}

func write(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("event")); err != nil {
		t.Error(err)
	}
}

func TestWaiterReportsDataOfAPause(t *testing.T) {
	w, other, read := waiterOf(t)
	const d = 30 * time.Millisecond
	for range 3 {
		begun := time.Now()
		write(t, other)
		w.sleep(d)
		if took := time.Since(begun); took < d {
			t.Errorf("slept %s with something to read, want %s", took, d)
		}
		// No new event: only the one that arrived during the pause.
		if err := w.await(time.Now().Add(10*time.Second), read); err != nil {
			t.Errorf("await() = %v for an event of a pause", err)
		}
	}
}

func TestWaiterIsWoken(t *testing.T) {
	w, other, read := waiterOf(t)
	w.sleep(time.Millisecond)
	time.AfterFunc(20*time.Millisecond, func() { write(t, other) })
	if err := w.await(time.Now().Add(10*time.Second), read); err != nil {
		t.Errorf("await() = %v, want that it returns with the event", err)
	}
}

func TestWaiterDeadline(t *testing.T) {
	w, _, read := waiterOf(t)
	for range 2 { // the second has another deadline
		if err := w.await(time.Now().Add(10*time.Millisecond), read); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("await() = %v, want that the deadline has passed", err)
		}
	}
	// A deadline in the past does not shorten later pauses.
	w.sleep(time.Millisecond)
	begun := time.Now()
	w.sleep(20 * time.Millisecond)
	if took := time.Since(begun); took < 20*time.Millisecond {
		t.Errorf("slept %s after a deadline, want 20 ms", took)
	}
}

func TestWaiterWake(t *testing.T) {
	w, _, read := waiterOf(t)
	ended := make(chan error, 1)
	go func() { ended <- w.await(time.Now().Add(time.Hour), read) }()
	time.Sleep(10 * time.Millisecond)
	if err := w.wake(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("await() = nil, want an error: nothing came")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("await() goes on after wake")
	}
	w.sleep(time.Hour) // returns at once
}

func TestWaiterAllocatesNothing(t *testing.T) {
	w, other, _ := waiterOf(t)
	var buf [8]byte
	take := func(uintptr) bool { n, err := unix.Read(w.fd, buf[:]); return n > 0 && err == nil }
	deadline := time.Now().Add(time.Minute)
	if n := testing.AllocsPerRun(100, func() {
		w.sleep(time.Microsecond)
		_, _ = unix.Write(other, buf[:])
		_ = w.await(deadline, take)
	}); n > 0 {
		t.Errorf("%v allocations for a pause and a wait, want none", n)
	}
}
