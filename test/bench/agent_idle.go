// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import "context"

// askIdle measures the cost of waiting. All listeners run at the same time, so that other processes on this machine
// affect all of them.
func (a *agentBench) askIdle(ctx context.Context) error {
	const longer = 5 // The differences are small.
	modes := []string{"netlink", "poll", "naive-poll"}
	listening := make([]*child, len(modes))
	before := make([]glance, len(modes))
	var err error
	for i, mode := range modes {
		if listening[i], err = a.listen(ctx, mode); err != nil {
			return err
		}
		defer listening[i].stop()
	}
	if err := pause(ctx, settleFor); err != nil {
		return err
	}
	for i, l := range listening {
		if before[i], err = look(l, true); err != nil {
			return err
		}
	}
	if err := pause(ctx, longer*a.span); err != nil {
		return err
	}
	figures := make([]figure, len(modes))
	var execs float64
	for i, l := range listening {
		after, err := look(l, true)
		if err != nil {
			return err
		}
		took := (after.at - before[i].at).Seconds()
		used := after.usage.minus(before[i].usage)
		figures[i] = one("G7 idle: CPU, "+modes[i], "ms/s", 1, used.cpu.Seconds()*1000/took)
		if i == 0 {
			execs = float64(after.counts.execs-before[i].counts.execs) / took
		}
	}
	f := figures[0].against("naive poll", figures[2])
	a.add(f.goal("≤ 0.02 × naive poll", f.within(.02)))
	a.add(figures[1].against("naive poll", figures[2]))
	a.add(one("G7 idle: programs that others started", "1/s", 1, execs))
	return nil
}
