// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// spare is how many PIDs remain for other programs.
const spare = 3000

// askWalk measures the cost of a scan of all processes, if there are many.
func (a *agentBench) askWalk(ctx context.Context) error {
	end, err := a.populate(a.processes)
	if err != nil {
		return err
	}
	defer end()
	modes := []string{"poll", "naive-poll"}
	cpu, mallocs := map[string][]float64{}, map[string][]float64{}
	for range a.rounds {
		for _, mode := range modes {
			w, err := a.walks(ctx, mode)
			if err != nil {
				return err
			}
			cpu[mode] = append(cpu[mode], w.cpu)
			mallocs[mode] = append(mallocs[mode], w.mallocs/float64(a.processes))
		}
	}
	what := fmt.Sprintf("G9 walk of %d processes: ", a.processes)
	f := spreadOf(what+"CPU, agent", "ms", cpu["poll"]).against("naive poll", spreadOf("", "", cpu["naive-poll"]))
	a.add(f.goal("≤ 0.4 × naive poll", f.within(.4)))
	m := spreadOf(what+"allocations per process, agent", "", mallocs["poll"])
	a.add(m.goal("0 (p50 ≤ 0.01)", m.P50 <= .01))
	end()
	return a.askBigWalk(ctx)
}

// askBigWalk measures the share of a core for ten times as many processes: polls are then less frequent.
func (a *agentBench) askBigWalk(ctx context.Context) error {
	n, err := a.room(10 * a.processes)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("G9 polling %d processes: share of a core", n)
	end, err := a.populate(n)
	if err != nil {
		return err
	}
	defer end()
	w, err := a.walks(ctx, "poll")
	if err != nil {
		return err
	}
	a.add(one(what, "%", w.n, w.share*100).goal("≤ 6", w.share <= .06))
	a.add(one("G9: time between polls then", "s", w.n, w.interval.Seconds()))
	return nil
}

// populate starts n processes with arguments of usual length.
func (a *agentBench) populate(n int) (end func(), err error) {
	return spawn(n, a.sleeper, strings.Repeat("x", 100))
}

// room returns the wanted number of processes, or less if there are not enough PIDs.
func (a *agentBench) room(wanted int) (int, error) {
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0, err
	}
	limit, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0, err
	}
	if free := limit - spare; free < wanted {
		a.note("there are pids for %d processes only: kernel.pid_max is %d", free, limit)
		return free, nil
	}
	return wanted, nil
}

// walks are the costs of polls: CPU ms and allocations for each of n, the share of a core, and the time between polls.
type walks struct {
	cpu, mallocs, share float64
	n                   int
	interval            time.Duration
}

// walks measures from the second poll on, because the first opens files that later ones reuse.
func (a *agentBench) walks(ctx context.Context, mode string) (walks, error) {
	l, err := a.listen(ctx, mode)
	if err != nil {
		return walks{}, err
	}
	defer l.stop()
	from, err := a.polls(ctx, l, 2)
	if err != nil {
		return walks{}, err
	}
	if err := pause(ctx, a.span); err != nil {
		return walks{}, err
	}
	to, err := a.polls(ctx, l, from.counts.polls+4)
	if err != nil {
		return walks{}, err
	}
	used, did := to.usage.minus(from.usage), to.counts.minus(from.counts)
	return walks{
		n: did.polls, interval: did.interval, share: used.cpu.Seconds() / (to.at - from.at).Seconds(),
		cpu: used.cpu.Seconds() * 1000 / float64(did.polls), mallocs: float64(did.mallocs) / float64(did.polls),
	}, nil
}

// polls waits until a listener has polled n times.
func (*agentBench) polls(ctx context.Context, l *child, n int) (glance, error) {
	for {
		g, err := look(l, true)
		if err != nil || g.counts.polls >= n {
			return g, err
		}
		if err := pause(ctx, max(20*time.Millisecond, g.counts.interval/2)); err != nil {
			return g, err
		}
	}
}

// askExecInPlace measures when a poll finds a known process that has executed another program since. Its PID and start
// time stay the same.
func (a *agentBench) askExecInPlace(ctx context.Context) error {
	l, err := a.listen(ctx, "poll")
	if err != nil {
		return err
	}
	defer l.stop()
	var took []time.Duration
	for range max(a.targets/30, 1) {
		t, err := a.become(ctx, l)
		if err != nil {
			return err
		}
		took = append(took, t)
	}
	n, err := counted(l)
	if err != nil {
		return err
	}
	const walk = 25 * time.Millisecond // part of the time to the decision
	f := spread("G9 exec in place: to the decision by poll", took)
	bound := float64((n.interval + walk).Milliseconds())
	a.add(f.goal(fmt.Sprintf("≤ %s (an interval and a walk)", number(bound)), f.Max <= bound))
	return nil
}

// become starts a shell that waits for two polls, and then executes a target.
func (a *agentBench) become(ctx context.Context, l *child) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", `read line; exec "$PROGRAM" "$TARGET_ARG"`)
	cmd.Env = append(os.Environ(), "PROGRAM="+a.lasting, "TARGET_ARG="+a.pattern)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	n, err := counted(l)
	if err != nil {
		return 0, err
	}
	g, err := a.polls(ctx, l, n.polls+2)
	if err != nil {
		return 0, err
	}
	// Somewhere between two polls.
	if err := pause(ctx, time.Duration(a.random.Int64N(int64(g.counts.interval)))); err != nil {
		return 0, err
	}
	at := monotonic()
	if _, err := io.WriteString(in, "\n"); err != nil {
		return 0, err
	}
	if err := pause(ctx, 2*g.counts.interval); err != nil {
		return 0, err
	}
	f := join([]start{{pid: cmd.Process.Pid, at: at}}, sightings(l), patienceReady)
	if f.lost > 0 {
		return 0, fmt.Errorf("process %d was not found", cmd.Process.Pid)
	}
	return f.call[0], nil
}
