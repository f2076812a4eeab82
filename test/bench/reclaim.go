// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

const (
	// pool bounds the machines that reclaims use in turn.
	pool = 60
	// Goals of the reclaim path, in milliseconds and writes.
	goalP50, goalP99, goalWrites = 40, 100, 3
)

// detectors are measured in turn, so that conditions are equal.
var detectors = []string{"netlink", "poll"}

// A reclaimBench reclaims machines, one at a time.
type reclaimBench struct {
	*fleet

	random            *rand.Rand
	launcher, target  string
	pattern, identity string
	names, ready      []string
	byDetector        map[string][]reclaimed
	// busy reports that other machines leave, so that the plane never becomes quiet.
	busy bool
}

// benchReclaim measures from the exec of an owner's program to the deletion of the Machine.
func benchReclaim(ctx context.Context, b *bench) error {
	return b.withReclaims(ctx, func(ctx context.Context, r *reclaimBench) error {
		if err := r.prepare(ctx, r.lab.runs*len(detectors)); err != nil {
			return err
		}
		if err := r.measure(ctx); err != nil {
			return err
		}
		r.summarize()
		return nil
	})
}

// withReclaims runs f in a lab in which machines can be reclaimed, and whose manager has args.
func (b *bench) withReclaims(ctx context.Context, f func(context.Context, *reclaimBench) error, args ...string) error {
	launcher, err := b.build(ctx, "./bench/launcher", "launcher")
	if err != nil {
		return err
	}
	return b.with(ctx, b.bin, args, func(ctx context.Context, l *lab) error {
		followed, err := l.follow(ctx)
		if err != nil {
			return err
		}
		return f(ctx, &reclaimBench{fleet: followed, random: b.random(), launcher: launcher, byDetector: map[string][]reclaimed{}})
	})
}

// measure uses the detectors in turn.
func (r *reclaimBench) measure(ctx context.Context) error {
	for i := range r.lab.runs {
		if i > 0 && i%50 == 0 {
			r.lab.note("%d of %d runs; load %s", i, r.lab.runs, load())
		}
		for _, detector := range detectors {
			run, err := r.once(ctx, detector)
			if err != nil {
				return fmt.Errorf("reclaiming by %s: %w", detector, err)
			}
			r.byDetector[detector] = append(r.byDetector[detector], run)
		}
	}
	return nil
}

// prepare starts machines for runs. Their agents watch the processes of this machine.
func (r *reclaimBench) prepare(ctx context.Context, runs int) error {
	r.pattern = fmt.Sprintf("bench-%08x", r.random.Uint32())
	r.target = filepath.Join(r.lab.dir, r.pattern)
	if err := os.Symlink(r.lab.Bin("pause"), r.target); err != nil {
		return err
	}
	id := fmt.Sprintf("%016x%016x", r.random.Uint64(), r.random.Uint64())
	r.identity = filepath.Join(r.lab.dir, "machine-id")
	if err := os.WriteFile(r.identity, []byte(id+"\n"), 0o600); err != nil {
		return err
	}
	var err error
	r.names, err = r.lab.create(ctx, "box", min(runs, pool), infrav1.PlaneMachineSpec{MachineID: id}, nil)
	if err != nil {
		return err
	}
	return r.refill(ctx)
}

// refill waits until all machines run, and everything is quiet.
func (r *reclaimBench) refill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(len(r.names))*time.Second)
	defer cancel()
	if err := r.settle(ctx, r.names, v1alpha1.PhaseActive); err != nil {
		return err
	}
	r.ready = r.names
	if r.busy {
		return nil
	}
	return r.lab.quiet(ctx, 2*time.Second)
}

// next returns a running machine.
func (r *reclaimBench) next(ctx context.Context) (string, error) {
	if len(r.ready) == 0 {
		if err := r.lab.patch(ctx, r.names, turnOn); err != nil {
			return "", err
		}
		if err := r.refill(ctx); err != nil {
			return "", err
		}
	}
	name := r.ready[0]
	r.ready = r.ready[1:]
	return name, nil
}

// summarize computes the figures of the runs.
func (r *reclaimBench) summarize() {
	polled := spread("poll: exec → Machine deleted", pick(r.byDetector["poll"], total))
	runs := r.byDetector["netlink"]
	r.lab.add(r.lab.judge("netlink", runs).against("poll", polled))
	r.lab.add(polled)
	for _, stage := range stages {
		r.lab.add(spread("netlink: "+stage.name, pick(runs, stage.of)).against("poll", spread("", pick(r.byDetector["poll"], stage.of))))
	}
	counts := func(of func(reclaimed) int) []float64 {
		values := make([]float64, len(runs))
		for i, run := range runs {
			values[i] = float64(of(run))
		}
		return values
	}
	writes := spreadOf("writes from annotation to deletion", "writes", counts(func(r reclaimed) int { return r.writes }))
	r.lab.add(writes.goal(fmt.Sprintf("≤ %d", goalWrites), writes.Max <= goalWrites))
	r.lab.add(spreadOf("Events and status writes besides", "writes", counts(func(r reclaimed) int { return r.besides })))
}

// judge compares the time that an owner waits with its goals.
func (l *lab) judge(what string, runs []reclaimed) figure {
	f := spread(what+": exec → Machine deleted", pick(runs, total))
	return f.goal(fmt.Sprintf("p50 ≤ %d, p99 ≤ %d", goalP50, goalP99), f.P50 <= goalP50 && f.P99 <= goalP99)
}

func pick(runs []reclaimed, of func(reclaimed) time.Duration) []time.Duration {
	out := make([]time.Duration, len(runs))
	for i, run := range runs {
		out[i] = of(run)
	}
	return out
}
