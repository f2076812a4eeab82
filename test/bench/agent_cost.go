// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A listener is a program whose cost is measured: the agent, a naive one, or a peer.
type listener struct {
	name  string
	start func(context.Context) (*child, error)
	// ours marks listeners that report their counts.
	ours bool
}

// The names of listeners in figures. alone is the case without a listener.
const (
	agent, naive      = "agent", "naive listener"
	forkstat, extrace = "forkstat", "extrace"
	alone             = "no listener"
)

func (a *agentBench) listeners() []listener {
	mode := func(mode string) func(context.Context) (*child, error) {
		return func(ctx context.Context) (*child, error) { return a.listen(ctx, mode) }
	}
	return []listener{
		{agent, mode("netlink"), true},
		{naive, mode("naive-netlink"), true},
		{forkstat, func(ctx context.Context) (*child, error) { return a.forkstat.start(ctx, "-e", "exec") }, false},
		{extrace, func(ctx context.Context) (*child, error) { return a.extrace.start(ctx) }, false},
	}
}

// A scenario is a storm under which listeners are measured.
type scenario struct {
	name string
	args []string
	// each is the number of programs that run for one start of the storm.
	each float64
	// also are further listeners: alone, if the storm's own speed counts.
	also []listener
}

// costs are the costs of one listener under one load, one value per round.
type costs struct {
	// cpu is in µs per started program; wakeups and mallocs are counts.
	cpu, wakeups, mallocs []float64
	// rate is the number of started programs per second.
	rate []float64
	err  error
}

// askCost measures the cost of a started program for each listener, and the cost of a listener for the programs that
// start others.
func (a *agentBench) askCost(ctx context.Context) error {
	compile, err := a.compileLoop(ctx)
	if err != nil {
		return err
	}
	loads := []scenario{
		{name: "2,000 trivial execs/s", args: []string{"-rate", "2000", a.trivial}, each: 1},
		{name: "2,000 execs/s that live 20 ms", args: []string{"-rate", "2000", a.brief}, each: 1},
		{name: "compile loop", args: compile, each: 2, also: []listener{{name: alone}}},
	}
	byLoad := make([]map[string]*costs, len(loads))
	for i, l := range loads {
		if byLoad[i], err = a.compare(ctx, l); err != nil {
			return err
		}
	}
	trivial, alive, compiling := byLoad[0], byLoad[1], byLoad[2]
	a.cheaper("G3 "+loads[0].name, trivial, forkstat, .25)
	a.cheaper("G3 "+loads[0].name, trivial, extrace, .35)
	a.cheaper("G3 "+loads[1].name, alive, forkstat, .4)
	a.cheaper("G3 "+loads[2].name, compiling, forkstat, .6)
	a.cheaper("G4 "+loads[0].name, trivial, naive, .1)
	wakeups := spreadOf("G5 "+loads[0].name+": wake-ups per exec, agent", "", trivial[agent].wakeups)
	a.add(wakeups.goal("p50 ≤ 0.3", wakeups.P50 <= .3))
	mallocs := spreadOf("G5 "+loads[0].name+": allocations per exec, agent", "", trivial[agent].mallocs)
	a.add(mallocs.goal("0 (p50 ≤ 0.01)", mallocs.P50 <= .01))
	a.faster(compiling, alone, .98)
	a.faster(compiling, forkstat, 1.05)
	return nil
}

// compileLoop returns the arguments of a storm of compilers, each started by a shell as make does. Every machine that
// builds bench has the compiler.
func (a *agentBench) compileLoop(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOTOOLDIR").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the compiler: %w", err)
	}
	compiler, source := filepath.Join(strings.TrimSpace(string(out)), "compile"), filepath.Join(a.dir, "small.go")
	if err := os.WriteFile(source, []byte("package small\n\nfunc Double(n int) int { return n + n }\n"), 0o600); err != nil {
		return nil, err
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		return nil, unmeasured("%v", err)
	}
	script := fmt.Sprintf("%s -p small -o /dev/null %s; :", compiler, source)
	if out, err := exec.CommandContext(ctx, compiler, "-p", "small", "-o", os.DevNull, source).CombinedOutput(); err != nil { //nolint:gosec // Go's compiler
		return nil, fmt.Errorf("compiling: %w: %s", err, out)
	}
	return []string{"-workers", strconv.Itoa(runtime.NumCPU()), shell, "-c", script}, nil
}

// compare measures all listeners in turn, in another order each round, so that conditions are equal.
func (a *agentBench) compare(ctx context.Context, l scenario) (map[string]*costs, error) {
	listeners := append(a.listeners(), l.also...)
	byName := map[string]*costs{}
	for _, li := range listeners {
		byName[li.name] = &costs{}
	}
	for round := range a.rounds {
		a.random.Shuffle(len(listeners), func(i, j int) { listeners[i], listeners[j] = listeners[j], listeners[i] })
		for _, li := range listeners {
			c := byName[li.name]
			if c.err != nil {
				continue
			}
			if c.err = a.charge(ctx, l, li, c); c.err != nil && !errors.Is(c.err, errUnmeasured) {
				return nil, fmt.Errorf("%s under %s: %w", li.name, l.name, c.err)
			}
		}
		a.note("%s: round %d of %d; load %s", l.name, round+1, a.rounds, load())
	}
	for _, li := range listeners {
		if c := byName[li.name]; c.err == nil {
			a.note("%s: %s: %s µs/exec, %s wake-ups/exec, %s/s", l.name, li.name, number(median(c.cpu)), number(median(c.wakeups)), number(median(c.rate)))
		}
	}
	return byName, nil
}

// charge measures one listener under a load.
func (a *agentBench) charge(ctx context.Context, l scenario, li listener, c *costs) error {
	var listening *child
	if li.start != nil {
		var err error
		if listening, err = li.start(ctx); err != nil {
			return err
		}
		defer listening.stop()
	}
	storming, err := a.unleash(ctx, "", l.args...)
	if err != nil {
		return err
	}
	defer storming.stop()
	if err := pause(ctx, settleFor); err != nil {
		return err
	}
	before, err := look(listening, li.ours)
	if err != nil {
		return err
	}
	if err := pause(ctx, a.span); err != nil {
		return err
	}
	after, err := look(listening, li.ours)
	if err != nil {
		return err
	}
	s, err := a.calm(storming)
	if err != nil {
		return err
	}
	// The rate of a storm is constant enough to apply it to a part of the storm.
	execs := l.each * s.rate() * (after.at - before.at).Seconds()
	used := after.usage.minus(before.usage)
	c.rate = append(c.rate, s.rate())
	c.cpu = append(c.cpu, float64(used.cpu)/execs/float64(time.Microsecond))
	c.wakeups = append(c.wakeups, float64(used.wakeups)/execs)
	if li.ours {
		did := after.counts.minus(before.counts)
		c.mallocs = append(c.mallocs, float64(did.mallocs)/float64(max(did.execs, 1)))
	}
	return nil
}

// A glance is the resource usage of a listener at one time, with its counts if it is ours.
type glance struct {
	at     time.Duration
	usage  usage
	counts counts
}

func look(c *child, ours bool) (g glance, err error) {
	g.at = monotonic()
	if c != nil {
		g.usage, err = c.used()
	}
	if ours && err == nil {
		g.counts, err = counted(c)
	}
	return g, err
}

// cheaper compares the agent's CPU time per program with a peer's.
func (a *agentBench) cheaper(what string, all map[string]*costs, peer string, share float64) {
	what += ": CPU per exec, agent against " + peer
	if err := errors.Join(all[agent].err, all[peer].err); err != nil {
		a.add(missing(what, err))
		return
	}
	f := spreadOf(what, "µs", all[agent].cpu).against(peer, spreadOf("", "", all[peer].cpu))
	a.add(f.goal(fmt.Sprintf("≤ %v × %s", share, peer), f.within(share)))
}

// faster compares the speed of the storm with the agent running and with a peer running.
func (a *agentBench) faster(all map[string]*costs, peer string, factor float64) {
	what := "G6 compile loop: speed beside the agent against " + peer
	if err := errors.Join(all[agent].err, all[peer].err); err != nil {
		a.add(missing(what, err))
		return
	}
	f := spreadOf(what, "1/s", all[agent].rate).against(peer, spreadOf("", "", all[peer].rate))
	a.add(f.goal(fmt.Sprintf("≥ %v × %s", factor, peer), f.Ratio >= factor))
}

func median(values []float64) float64 { return quantile(slices.Sorted(slices.Values(values)), .5) }
