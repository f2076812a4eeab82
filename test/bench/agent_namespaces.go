// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// askNamespaces checks that the agent reports why the kernel announces no processes to it, and that it still finds
// processes.
func (a *agentBench) askNamespaces(ctx context.Context) error {
	for _, ns := range []struct {
		name string
		flag uintptr
	}{{"network", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"user", unix.CLONE_NEWUSER}} {
		what := "G14 private " + ns.name + " namespace: "
		begun := monotonic()
		l, err := a.listenIn(ctx, "auto", ns.flag)
		if err != nil {
			a.add(missing(what, unmeasured("%v", err)))
			continue
		}
		if err := a.askNamespace(ctx, what, begun, l); err != nil {
			return err
		}
	}
	return nil
}

func (a *agentBench) askNamespace(ctx context.Context, what string, begun time.Duration, l *child) error {
	defer l.stop()
	said, err := l.await("Polling, because", patienceReady)
	if err != nil {
		return err
	}
	after := float64(said.at-begun) / float64(time.Millisecond)
	a.add(one(what+"says why after", "ms", 1, after).goal("≤ 1000", after <= 1000))
	found, err := a.finds(ctx, l)
	if err != nil {
		return err
	}
	a.add(one(what+"found by poll", "matches", 1, float64(found)).goal("1", found == 1))
	return nil
}

// finds starts a target, and returns how often a listener finds it.
func (a *agentBench) finds(ctx context.Context, l *child) (int, error) {
	before := len(sightings(l))
	end, err := spawn(1, a.sleeper, a.pattern)
	if err != nil {
		return 0, err
	}
	defer end()
	err = pause(ctx, time.Second)
	return len(sightings(l)) - before, err
}

// askSilence installs a filter on the agent's socket that drops everything. It measures when the agent notices, and
// checks that it recovers.
func (a *agentBench) askSilence(ctx context.Context) error {
	l, err := a.listen(ctx, "netlink")
	if err != nil {
		return err
	}
	defer l.stop()
	begun := monotonic()
	if err := silence(l.pid()); err != nil {
		return unmeasured("silencing the listener: %v", err)
	}
	noticed, err := l.await("Subscribing again", time.Minute)
	if err != nil {
		return err
	}
	after := (noticed.at - begun).Seconds()
	a.add(one("G14 silenced: notices after", "s", 1, after).goal("≤ 31", after <= 31))
	if err := pause(ctx, settleFor); err != nil {
		return err
	}
	found, err := a.finds(ctx, l)
	if err != nil {
		return err
	}
	a.add(one("G14 silenced: finds again", "matches", 1, float64(found)).goal("1", found == 1))
	return nil
}

// silence installs that filter on the only socket of a process.
func silence(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("opening the process: %w", err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	for _, path := range fds {
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			return fmt.Errorf("taking its socket: %w", err)
		}
		defer func() { _ = unix.Close(fd) }()
		return dropAll(fd)
	}
	return errors.New("it has no socket")
}

func dropAll(fd int) error {
	raw, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err != nil {
		return err
	}
	filter := unix.SockFilter{Code: raw[0].Op, Jt: raw[0].Jt, Jf: raw[0].Jf, K: raw[0].K}
	return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &filter}))
}
