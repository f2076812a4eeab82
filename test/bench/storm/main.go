// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command storm starts a program repeatedly. At the end it prints "done", the number of starts, and their duration in
// nanoseconds. With --print it prints each PID, and the nanosecond of CLOCK_MONOTONIC before its start.
//
//	storm [flags] program [argument...]
//
// The environment variable TARGET_ARG is one more argument for the program. It is not an argument of storm, because the
// agent matches these, too.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	rate := flag.Int("rate", 0, "Starts a second, 0 for as many as there can be.")
	n := flag.Int("n", 0, "Starts, 0 for no limit.")
	span := flag.Duration("for", time.Hour, "How long.")
	workers := flag.Int("workers", 1, "How many start programs; rate is for all of them.")
	tell := flag.Bool("print", false, "Print each.")
	flag.Parse()
	// The kernel reaps the children.
	signal.Ignore(syscall.SIGCHLD)
	s := &storm{args: flag.Args(), limit: int64(*n), tell: *tell, out: bufio.NewWriter(os.Stdout)}
	if arg := os.Getenv("TARGET_ARG"); arg != "" { //nolint:forbidigo // see above
		s.args = append(s.args, arg)
	}
	if *rate > 0 {
		s.gap = time.Second * time.Duration(*workers) / time.Duration(*rate)
	}
	begun := now()
	s.until.Store(begun + span.Nanoseconds())
	go s.obey()
	var all sync.WaitGroup
	for range *workers {
		all.Go(s.work)
	}
	all.Wait()
	_, _ = fmt.Fprintln(s.out, "done", s.started.Load(), now()-begun)
	_ = s.out.Flush()
}

type storm struct {
	args  []string
	gap   time.Duration
	limit int64
	tell  bool

	until          atomic.Int64
	given, started atomic.Int64
	mu             sync.Mutex
	out            *bufio.Writer
}

// obey ends the storm on SIGTERM.
func (s *storm) obey() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
	s.until.Store(0)
}

// work starts programs at its rate, and catches up after a delay.
func (s *storm) work() {
	for next := now(); now() < s.until.Load() && (s.limit == 0 || s.given.Add(1) <= s.limit); next += int64(s.gap) {
		if ahead := next - now(); ahead > 0 {
			ts := unix.NsecToTimespec(ahead)
			_ = unix.Nanosleep(&ts, nil)
		}
		at := now()
		pid, err := syscall.ForkExec(s.args[0], s.args, &syscall.ProcAttr{}) //nolint:gosec // this is what it is for
		if err != nil {
			fmt.Fprintln(os.Stderr, "storm:", err)
			os.Exit(1) //nolint:forbidigo // this is a command
		}
		s.started.Add(1)
		if s.gap == 0 {
			_, _ = unix.Wait4(pid, nil, 0, nil) // otherwise zombies would accumulate
		}
		if s.tell {
			s.mu.Lock()
			_, _ = fmt.Fprintln(s.out, pid, at)
			s.mu.Unlock()
		}
	}
}

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
