// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"
)

// targetRate is how many targets are started per second.
const targetRate = 60

// askLatency measures the time from the start of a program to the decision on an idle machine.
func (a *agentBench) askLatency(ctx context.Context) error {
	const rest = 20
	n := max(a.targets/3, 1)
	told, err := a.seek(ctx, "netlink", a.target, n, rest)
	if err != nil {
		return err
	}
	naively, err := a.seek(ctx, "naive-netlink", a.target, n, rest)
	if err != nil {
		return err
	}
	// They live longer than the interval between polls.
	polled, err := a.seek(ctx, "poll", a.lasting, n, rest)
	if err != nil {
		return err
	}
	call := spread("G1 idle: exec call → decision", told.call)
	poll := spread("G1 idle: exec call → decision, 250 ms poll", polled.call)
	baseline := spread("G1 idle: kernel's event → decision, naive listener", naively.event)
	event := spread("G1 idle: kernel's event → decision", told.event).against("naive listener", baseline)
	if call.N > 0 && poll.N > 0 {
		call.Peer, call.Ratio = "poll (p99)", call.P99/poll.P99
	}
	a.add(call.goal("p99 ≤ 0.01 × poll", call.within(.01)))
	a.add(poll)
	a.add(event.goal("p50 ≤ 0.15, p99 ≤ 1", event.P50 <= .15 && event.P99 <= 1))
	a.add(baseline)
	return nil
}

// askStorm repeats that while thousands of programs start per second, and counts lost events.
func (a *agentBench) askStorm(ctx context.Context) error {
	for _, s := range []struct {
		what, goal string
		args       []string
		met        func(figure) bool
	}{
		{"3,000 execs/s", "p99 ≤ 3, worst ≤ 10", []string{"-rate", "3000", a.trivial}, func(f figure) bool { return f.P99 <= 3 && f.Max <= 10 }},
		{"flat out", "p99 ≤ 5", a.flatOut(), func(f figure) bool { return f.P99 <= 5 }},
	} {
		c, err := a.unleash(ctx, "", s.args...)
		if err != nil {
			return err
		}
		told, err := a.seek(ctx, "netlink", a.target, a.targets, targetRate)
		reached, stormErr := a.calm(c)
		if err := errors.Join(err, stormErr); err != nil {
			return err
		}
		f := spread(fmt.Sprintf("G2 %s (%.0f/s reached): kernel's event → decision", s.what, reached.rate()), told.event)
		a.add(f.goal(s.goal, s.met(f)))
		a.add(told.losses("G2 " + s.what))
	}
	return nil
}

// askStarved repeats that while other programs use all cores.
func (a *agentBench) askStarved(ctx context.Context) error {
	end, err := spawn(4*runtime.NumCPU(), a.spinner)
	if err != nil {
		return err
	}
	defer end()
	told, err := a.seek(ctx, "netlink", a.target, a.targets, targetRate)
	if err != nil {
		return err
	}
	naively, err := a.seek(ctx, "naive-netlink", a.target, a.targets, targetRate)
	if err != nil {
		return err
	}
	const what = "G12 four busy processes per core: kernel's event → decision"
	baseline := spread(what+", naive listener", naively.event)
	f := spread(what, told.event).against("naive listener", baseline)
	a.add(f.goal("p99 ≤ 8", f.P99 <= 8))
	a.add(baseline)
	for who, f := range map[string]found{"agent": told, "naive listener": naively} {
		a.add(one("G12: gone before they were read, "+who, "targets", a.targets, float64(f.lost)))
	}
	return nil
}

// seek starts n targets while a listener runs, and joins starts and sightings.
func (a *agentBench) seek(ctx context.Context, mode, program string, n, rate int) (found, error) {
	l, err := a.listen(ctx, mode)
	if err != nil {
		return found{}, err
	}
	defer l.stop()
	if err := pause(ctx, settleFor); err != nil {
		return found{}, err
	}
	c, err := a.unleash(ctx, a.pattern, "-print", "-rate", strconv.Itoa(rate), "-n", strconv.Itoa(n), program)
	if err != nil {
		return found{}, err
	}
	s, err := a.await(c)
	if err != nil {
		return found{}, err
	}
	if err := pause(ctx, time.Second); err != nil {
		return found{}, err
	}
	return join(s.starts, sightings(l), patienceReady), nil
}
