// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// startTimeout bounds the start of a plane, and patience one action of one machine.
	startTimeout = 3 * time.Minute
	patience     = 2 * time.Minute
	// leaseSeconds and monitorGrace keep the leases of many Nodes out of the measurement; see docs/local-plane.md.
	leaseSeconds = 400
	monitorGrace = 500 * time.Second
	// namespace and clusterName identify the Cluster of all sections.
	namespace   = "bench"
	clusterName = "lab"
)

// A bench is one run of this program.
type bench struct {
	options
	out     io.Writer
	report  report
	section section
	first   int
	dir     string
}

// clk is the machine's clock, which the API servers and the agent share.
var clk = clock.RealClock{}

// note prints a remark.
func (b *bench) note(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, "# "+format+"\n", args...)
}

func (b *bench) begin(s section) {
	b.section, b.first = s, len(b.report.Figures)
	b.note("%s: %s; load %s", s.name, s.about, load())
}

// end prints the figures of a section.
func (b *bench) end() {
	b.note("load %s", load())
	printTable(b.out, b.report.Figures[b.first:])
}

// add stores a figure for the table, and prints it at once, so that an interrupted run also has results.
func (b *bench) add(f figure) {
	f.Section = b.section.name
	b.report.Figures = append(b.report.Figures, f)
	b.note("%s", f)
}

// random returns the same sequence for the same seed.
func (b *bench) random() *rand.Rand {
	return rand.New(rand.NewPCG(b.seed, b.seed)) //nolint:gosec // nothing to guess
}

// scratch is a directory that is removed at the end.
func (b *bench) scratch() (string, error) {
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "5spot-bench-")
		if err != nil {
			return "", err
		}
		b.dir = dir
	}
	return b.dir, nil
}

// build compiles a command of this module with the release flags, and returns its path. Without cgo it starts quickly.
func (b *bench) build(ctx context.Context, pkg, name string) (string, error) {
	dir, err := b.scratch()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, pkg) //nolint:gosec // packages of ours
	cmd.Dir, cmd.Env = filepath.Join(system.Repository(), "test"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", pkg, err, out)
	}
	return program, nil
}

func (b *bench) close() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// A lab is 5-Spot with one workload cluster.
type lab struct {
	*system.System
	*bench

	workload *plane.Workload
	// management and nodes are the audit logs of the two API servers.
	management, nodes *auditLog
}

// with runs f in a lab whose manager comes from bin and has args.
func (b *bench) with(ctx context.Context, bin string, args []string, f func(context.Context, *lab) error) (err error) {
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s, err := system.Start(start, system.Options{Bin: bin, ManagerArgs: append(args, b.args...)})
	if err != nil {
		return err
	}
	l := &lab{System: s, bench: b, management: &auditLog{dir: s.Management.Dir}}
	defer func() {
		if err != nil && ctx.Err() == nil {
			l.DumpLogs(os.Stderr, 15)
		}
		err = errors.Join(err, s.Stop())
	}()
	l.workload, err = s.NewWorkload(start, plane.WorkloadOptions{
		Namespace: namespace, Name: clusterName, NodeLeaseSeconds: leaseSeconds,
		ClusterOptions: plane.ClusterOptions{NodeMonitorGrace: monitorGrace, NoScheduler: true},
	})
	if err != nil {
		return err
	}
	l.nodes = &auditLog{dir: l.workload.Dir}
	watching, stop := context.WithCancel(ctx) // watches end before their API servers
	defer stop()
	return f(watching, l)
}
