// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"strconv"
	"syscall"
	"time"
)

// askOverrun stops the agent while more programs start than the kernel can queue for it. It measures when the agent has
// found the matching ones, and how often each.
func (a *agentBench) askOverrun(ctx context.Context) error {
	const execs, matching, stopped = 20_000, 20, 2 * time.Second
	l, err := a.listen(ctx, "netlink")
	if err != nil {
		return err
	}
	defer l.stop()
	if err := pause(ctx, settleFor); err != nil {
		return err
	}
	l.signal(syscall.SIGSTOP)
	begun := monotonic()
	// The kernel queues half of them, and has no room for the others.
	endQueued, err := spawn(matching/2, a.sleeper, a.pattern)
	if err != nil {
		return err
	}
	defer endQueued()
	c, err := a.unleash(ctx, "", append([]string{"-n", strconv.Itoa(execs)}, a.flatOut()...)...)
	if err != nil {
		return err
	}
	defer c.stop()
	if _, err := a.await(c); err != nil {
		return err
	}
	endLost, err := spawn(matching/2, a.sleeper, a.pattern)
	if err != nil {
		return err
	}
	defer endLost()
	if err := pause(ctx, stopped-(monotonic()-begun)); err != nil {
		return err
	}
	goesOn := monotonic()
	l.signal(syscall.SIGCONT)
	if err := pause(ctx, 3*time.Second); err != nil { // time to find one twice
		return err
	}
	var late time.Duration
	times := map[int]int{}
	for _, s := range sightings(l) {
		times[s.pid]++
		late = max(late, s.at-goesOn)
	}
	once := 0
	for _, n := range times {
		if n == 1 {
			once++
		}
	}
	f := one("G8 20,000 execs while stopped: last of 20 matches found", "ms", matching, float64(late)/float64(time.Millisecond))
	a.add(f.goal("≤ 500", len(times) == matching && f.Max <= 500))
	a.add(one("G8: found once", "matches", matching, float64(once)).goal("20", once == matching && len(times) == matching))
	return nil
}
