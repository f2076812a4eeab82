// SPDX-License-Identifier: Apache-2.0

// Command bench measures 5-Spot through real API servers, next to its peers and limits.
//
//	make bench
//	make bench BENCH='--only reclaim,edge --runs 50'
//
// The figures depend on the machine: compare figures within one run only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

type options struct {
	bin, json string
	only      []string
	runs      int
	machines  int
	crowd     int
	deferred  int
	settled   time.Duration
	fleet     int
	scale     int
	goals     []string
	targets   int
	rounds    int
	span      time.Duration
	processes int
	pods      int
	memory    int
	seed      uint64
	args      []string
}

// sampled are the sizes for --sample: the smallest that still exercise everything.
var sampled = options{runs: 10, machines: 50, crowd: 20, deferred: 20, settled: time.Minute, fleet: 20, scale: 10, targets: 30, rounds: 1, span: time.Second, processes: 300, pods: 500, memory: 256}

// A section measures one subject. It has its own plane unless it is planeless.
type section struct {
	name, about string
	run         func(context.Context, *bench) error
	planeless   bool
}

func sections() []section {
	return []section{
		{"agent", "the agent's detectors, against forkstat, extrace and naive ones", benchAgent, true},
		{"hold", "what an owner's program and memory have of the machine beside busy pods, with and without a hold", benchHold, true},
		{"reclaim", "an owner's program starts until the Machine is being deleted", benchReclaim, false},
		{"crowd", "an owner comes back while many other machines leave, and many owners at once", benchCrowd, false},
		{"edge", "a window opens, and closes, for many ScheduledMachines at once", benchEdge, false},
		{"settled", "requests of a fleet in which nothing happens", benchSettled, false},
		{"detach", "Nodes leave load balancers and come back, and an owner is behind one that does not answer", benchDetach, false},
		{"eviction", "evictions with the eviction guard, against the same API server without it", benchEviction, false},
		{"guardmemory", "the memory of an eviction guard that starts in a large cluster", benchGuardMemory, false},
		{"scale", "machines come and go, against a MachineDeployment and a bare loop", benchScale, false},
	}
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = quiet()
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func parse(args []string) (options, error) {
	var o options
	var only, goals, manager string
	var sample bool
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.bin, "bin", system.DefaultBin(), "Directory with manager and reclaim-agent, from `make build`.")
	fs.StringVar(&o.json, "json", "", "Also write the figures to this `file`, as JSON.")
	fs.StringVar(&only, "only", "", "Measure only these, separated by commas: "+names()+".")
	fs.IntVar(&o.runs, "runs", 200, "reclaim: runs with each detector; hold: runs in each situation; crowd, detach: runs in each situation, at most 50; eviction: tries in each situation.")
	fs.IntVar(&o.machines, "machines", 1000, "edge: ScheduledMachines that share the edge.")
	fs.IntVar(&o.crowd, "crowd", 500, "crowd: machines that leave at the same time.")
	fs.IntVar(&o.deferred, "deferred", 1000, "crowd: machines that the departure cap keeps at the same time.")
	fs.DurationVar(&o.settled, "settled", 10*time.Minute, "settled, detach: how long to look.")
	fs.IntVar(&o.fleet, "fleet", 100, "settled: ScheduledMachines, a quarter each Active, Inactive, Disabled and Terminated.")
	fs.IntVar(&o.scale, "scale", 50, "scale: machines that come and go; detach: Nodes of the load balancer.")
	fs.StringVar(&goals, "goals", "", "agent: Measure only these, separated by commas, such as G3,G9.")
	fs.IntVar(&o.targets, "targets", 900, "agent: processes to be found, each time.")
	fs.IntVar(&o.rounds, "rounds", 5, "agent: how often each listener is measured.")
	fs.DurationVar(&o.span, "span", 4*time.Second, "agent, eviction: for how long.")
	fs.IntVar(&o.processes, "processes", 3000, "agent: processes that a walk meets.")
	fs.IntVar(&o.pods, "pods", 50000, "guardmemory: pods of the cluster. A fifth of them is measured, too.")
	fs.IntVar(&o.memory, "memory", 4096, "hold: MiB that a pod uses which is killed.")
	fs.Uint64Var(&o.seed, "seed", 1, "Seed of what is random.")
	fs.StringVar(&manager, "manager-args", "", "Arguments of the manager, separated by blanks, such as '--kube-api-qps=500'.")
	fs.BoolVar(&sample, "sample", false, "Measure little, to see that all of it works. Flags that are given count.")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.args = strings.Fields(manager)
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	if goals != "" {
		o.goals = strings.Split(goals, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(sections(), func(s section) bool { return s.name == name }) {
			return o, fmt.Errorf("--only: %q is none of %s", name, names())
		}
	}
	if sample {
		o.shrink(fs)
	}
	for name, n := range o.numbers() {
		if *n < 1 {
			return o, fmt.Errorf("--%s is %d, want 1 or more", name, *n)
		}
	}
	if o.fleet < 4 || o.settled <= 0 || o.span <= 0 {
		return o, errors.New("--settled and --span must be positive, --fleet at least 4")
	}
	var err error
	o.bin, err = filepath.Abs(o.bin)
	return o, err
}

// shrink sets each option that the command line does not set to its value in sampled.
func (o *options) shrink(fs *flag.FlagSet) {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	small := sampled.numbers()
	for name, n := range o.numbers() {
		if !given[name] {
			*n = *small[name]
		}
	}
	if !given["settled"] {
		o.settled = sampled.settled
	}
	if !given["span"] {
		o.span = sampled.span
	}
}

// numbers are the numeric flags, by name.
func (o *options) numbers() map[string]*int {
	return map[string]*int{
		"runs": &o.runs, "machines": &o.machines, "crowd": &o.crowd, "deferred": &o.deferred, "fleet": &o.fleet, "scale": &o.scale,
		"targets": &o.targets, "rounds": &o.rounds, "processes": &o.processes, "pods": &o.pods, "memory": &o.memory,
	}
}

func names() string {
	all := sections()
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = s.name
	}
	return strings.Join(out, ", ")
}

// chosen returns the sections that o selects.
func (o *options) chosen() []section {
	return slices.DeleteFunc(sections(), func(s section) bool {
		return len(o.only) > 0 && !slices.Contains(o.only, s.name)
	})
}

// equipped returns an error if a program of the plane is missing.
func (o *options) equipped() error {
	for _, program := range []string{filepath.Join(o.bin, "manager"), filepath.Join(plane.DefaultBin(), "kube-apiserver")} {
		if _, err := os.Stat(program); err != nil { //nolint:gosec // an argument of this program
			return fmt.Errorf("programs are missing: run `make build plane-binaries`, or `make bench`, which does: %w", err)
		}
	}
	return nil
}

// run measures the sections that o selects, and prints each when it ends.
func run(ctx context.Context, o options, out io.Writer) error {
	if slices.ContainsFunc(o.chosen(), func(s section) bool { return !s.planeless }) {
		if err := o.equipped(); err != nil {
			return err
		}
	}
	b := &bench{options: o, out: out, report: report{Host: host(), Seed: o.seed}}
	defer b.close()
	b.note("%s", b.report.Host)
	b.note("seed %d", o.seed)
	for _, s := range o.chosen() {
		b.begin(s)
		err := s.run(ctx, b)
		b.end()
		if err != nil {
			return fmt.Errorf("measuring %s: %w", s.name, err)
		}
	}
	if o.json == "" {
		return nil
	}
	return b.report.write(o.json)
}
