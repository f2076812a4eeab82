// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A child is a program that runs beside bench, with its output so far.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu    sync.Mutex
	lines []line
	more  chan struct{}
}

// A line is one line of output, with its time by CLOCK_MONOTONIC.
type line struct {
	text string
	at   time.Duration
}

func newChild(ctx context.Context, path string, args []string) *child {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // programs of ours, and peers
	return asChild(cmd)
}

func asChild(cmd *exec.Cmd) *child {
	return &child{cmd: cmd, ended: make(chan struct{}), more: make(chan struct{}, 1)}
}

// startChild starts a program in new namespaces, which flags select. It captures both outputs.
func startChild(ctx context.Context, path string, args, env []string, flags uintptr) (*child, error) {
	c := newChild(ctx, path, args)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		root := []syscall.SysProcIDMap{{Size: 1}}
		c.cmd.SysProcAttr.UidMappings, c.cmd.SysProcAttr.GidMappings = root, root
	}
	return captured(func(out *os.File) (*exec.Cmd, error) {
		c.cmd.Stdout, c.cmd.Stderr = out, out
		return c.cmd, c.cmd.Start()
	})
}

// captured captures the output of a program that start starts.
func captured(start func(out *os.File) (*exec.Cmd, error)) (*child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd, err := start(w)
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	c := asChild(cmd)
	go c.read(r)
	return c, nil
}

// mute starts a program without capturing its output.
func mute(ctx context.Context, path string, args ...string) (*child, error) {
	c := newChild(ctx, path, args)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	close(c.ended)
	return c, nil
}

func (c *child) read(r io.ReadCloser) {
	defer close(c.ended)
	defer func() { _ = r.Close() }()
	for s := bufio.NewScanner(r); s.Scan(); {
		c.mu.Lock()
		c.lines = append(c.lines, line{text: s.Text(), at: monotonic()})
		c.mu.Unlock()
		select {
		case c.more <- struct{}{}:
		default:
		}
	}
}

func (c *child) all() []line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]line(nil), c.lines...)
}

// await waits for a line that contains text. One goroutine may wait.
func (c *child) await(text string, patience time.Duration) (line, error) {
	return c.awaitFrom(0, text, patience)
}

// awaitFrom is await that ignores the first lines.
func (c *child) awaitFrom(seen int, text string, patience time.Duration) (line, error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		lines := c.all()
		for _, l := range lines[seen:] {
			if strings.Contains(l.text, text) {
				return l, nil
			}
		}
		seen = len(lines)
		select {
		case <-c.more:
		case <-c.ended:
			if lines := c.all(); len(lines) > seen {
				continue
			}
			return line{}, fmt.Errorf("%s ended without %q: %s", filepath.Base(c.cmd.Path), text, c.tail())
		case <-timeout.C:
			return line{}, fmt.Errorf("%s did not print %q within %s: %s", filepath.Base(c.cmd.Path), text, patience, c.tail())
		}
	}
}

// tail is the end of the output.
func (c *child) tail() string {
	lines := c.all()
	var out []string
	for _, l := range lines[max(0, len(lines)-3):] {
		out = append(out, l.text)
	}
	return strings.Join(out, "; ")
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// signal ignores the error of a child that has ended: the next wait reports it.
func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// stop ends the child, and waits for it.
func (c *child) stop() {
	c.signal(syscall.SIGCONT)
	c.signal(syscall.SIGTERM)
	kill := time.AfterFunc(2*time.Second, func() { c.signal(syscall.SIGKILL) })
	defer kill.Stop()
	_ = c.cmd.Wait()
	<-c.ended
}

// A usage is the resource usage of a process so far.
type usage struct {
	cpu time.Duration
	// wakeups counts how often its threads slept and were woken.
	wakeups int
}

func (u usage) minus(v usage) usage { return usage{cpu: u.cpu - v.cpu, wakeups: u.wakeups - v.wakeups} }

var voluntary = regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s*(\d+)`)

// used reads the CPU clock of the process from the kernel. The number of that clock derives from the PID
// (MAKE_PROCESS_CPUCLOCK, <linux/posix-timers.h>).
func (c *child) used() (usage, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^c.pid()<<3|scheduled), &ts); err != nil { //nolint:gosec // a pid fits
		return usage{}, fmt.Errorf("%s is gone: %w: %s", filepath.Base(c.cmd.Path), err, c.tail())
	}
	u := usage{cpu: time.Duration(ts.Nano())}
	files, err := filepath.Glob("/proc/" + strconv.Itoa(c.pid()) + "/task/*/status")
	for _, file := range files {
		b, err := os.ReadFile(file) //nolint:gosec // of the kernel
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if m := voluntary.FindSubmatch(b); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			u.wakeups += n
		}
	}
	return u, err
}

// monotonic is the clock of the kernel's event timestamps.
func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}
