// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// stay bounds the lifetime of a process that bench ends itself, for the case that bench crashes.
	stay = 10 * time.Minute
	// settleFor is how long a listener runs before it is measured.
	settleFor = 300 * time.Millisecond
)

// An agentBench measures the detectors and the reports of the agent against its design goals, G1 to G15.
type agentBench struct {
	*bench
	random *rand.Rand

	// storm and listener are the paths of helper programs.
	storm, listener string
	// trivial ends at once. target, brief, lasting and sleeper live for 10 ms, 20 ms, a second, and until bench ends
	// them. spinner keeps a core busy.
	trivial, target, brief, lasting, sleeper, spinner string
	// pattern is a text that only the arguments of targets contain.
	pattern string
	// forkstat and extrace are the peers, or the reason why they are missing.
	forkstat, extrace peer
}

// errUnmeasured is wrapped by the error of a measurement that is impossible on this machine.
var errUnmeasured = errors.New("not measured")

func unmeasured(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUnmeasured, fmt.Sprintf(format, args...))
}

// benchAgent runs one measurement after the other. It reports an impossible one with its reason.
func benchAgent(ctx context.Context, b *bench) error {
	a := &agentBench{bench: b, random: b.random()}
	a.pattern = fmt.Sprintf("target-%08x", a.random.Uint32())
	if err := a.prepare(ctx); err != nil {
		if errors.Is(err, errUnmeasured) {
			b.add(missing("G1 to G15", err))
			return nil
		}
		return err
	}
	asked := 0
	for _, q := range []struct {
		goals []string
		ask   func(context.Context) error
	}{
		{[]string{"G1"}, a.askLatency},
		{[]string{"G2"}, a.askStorm},
		{[]string{"G3", "G4", "G5", "G6"}, a.askCost},
		{[]string{"G7"}, a.askIdle},
		{[]string{"G8"}, a.askOverrun},
		{[]string{"G9"}, a.askWalk},
		{[]string{"G9"}, a.askExecInPlace},
		{[]string{"G10"}, a.askMatching},
		{[]string{"G11"}, a.askSize},
		{[]string{"G12"}, a.askStarved},
		{[]string{"G13"}, a.askReport},
		{[]string{"G14"}, a.askNamespaces},
		{[]string{"G14"}, a.askSilence},
		{[]string{"G15"}, func(context.Context) error { return unmeasured("there is no detector in eBPF") }},
	} {
		wanted := func(goal string) bool { return slices.Contains(a.goals, goal) }
		if len(a.goals) > 0 && !slices.ContainsFunc(q.goals, wanted) {
			continue
		}
		asked++
		goals := strings.Join(q.goals, ", ")
		b.note("%s; load %s", goals, load())
		if err := q.ask(ctx); errors.Is(err, errUnmeasured) {
			b.add(missing(goals, err))
		} else if err != nil {
			return fmt.Errorf("%s: %w", goals, err)
		}
	}
	if asked == 0 {
		return fmt.Errorf("--goals: %s is none of G1 to G15", strings.Join(a.goals, ","))
	}
	return nil
}

// prepare creates the programs, and checks whether the kernel announces processes.
func (a *agentBench) prepare(ctx context.Context) error {
	c, err := tiny()
	if err != nil {
		return err
	}
	for name, path := range map[string]*string{"storm": &a.storm, "listener": &a.listener} {
		if *path, err = a.build(ctx, "./bench/"+name, name); err != nil {
			return err
		}
	}
	for _, program := range []struct {
		name         string
		path         *string
		instructions []byte
	}{
		{"trivial", &a.trivial, c.exit},
		{"target", &a.target, c.sleeping(10 * time.Millisecond)},
		{"brief", &a.brief, c.sleeping(20 * time.Millisecond)},
		{"lasting", &a.lasting, c.sleeping(time.Second)},
		{"sleeper", &a.sleeper, c.sleeping(stay)},
		{"spinner", &a.spinner, c.spin},
	} {
		*program.path = filepath.Join(a.dir, program.name)
		if err := c.writeTiny(*program.path, program.instructions); err != nil {
			return err
		}
	}
	l, err := a.listen(ctx, "netlink")
	if err != nil {
		return err
	}
	l.stop()
	a.fetchPeers(ctx)
	return nil
}

// A storm is the result of the storm generator.
type storm struct {
	starts []start
	n      int
	took   time.Duration
}

// A start is a started process, and its time.
type start struct {
	pid int
	at  time.Duration
}

// rate is the number of starts per second.
func (s storm) rate() float64 { return float64(s.n) / s.took.Seconds() }

// unleash starts the storm generator. Its programs have the argument arg.
func (a *agentBench) unleash(ctx context.Context, arg string, args ...string) (*child, error) {
	return startChild(ctx, a.storm, args, []string{"TARGET_ARG=" + arg}, 0)
}

// calm ends a storm.
func (a *agentBench) calm(c *child) (storm, error) {
	c.signal(syscall.SIGTERM)
	return a.await(c)
}

// await waits for the end of a storm.
func (*agentBench) await(c *child) (storm, error) {
	defer c.stop()
	done, err := c.await("done", stay)
	if err != nil {
		return storm{}, err
	}
	var s storm
	if !scan(done.text, "done %d %d", &s.n, &s.took) {
		return s, fmt.Errorf("the end of a storm is unreadable: %q", done.text)
	}
	for _, l := range c.all() {
		var t start
		if scan(l.text, "%d %d", &t.pid, &t.at) {
			s.starts = append(s.starts, t)
		}
	}
	return s, nil
}

func scan(text, format string, into ...any) bool {
	n, err := fmt.Sscanf(text, format, into...)
	return err == nil && n == len(into)
}

// spawn starts n processes of a program. end ends them.
func spawn(n int, path string, args ...string) (end func(), err error) {
	pids := make([]int, 0, n)
	end = func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, pid := range pids {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		pids = nil // end has reaped them
	}
	argv := append([]string{path}, args...)
	for range n {
		pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{}) //nolint:gosec // a program of ours
		if err != nil {
			end()
			return nil, err
		}
		pids = append(pids, pid)
	}
	return end, nil
}

// flatOut are the arguments of the fastest possible storm.
func (a *agentBench) flatOut() []string {
	return []string{"-workers", strconv.Itoa(runtime.NumCPU()), a.trivial}
}
