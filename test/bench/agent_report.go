// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	agentreport "github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

// askReport counts the requests of a report, and measures its duration over an existing connection and over a new one.
func (a *agentBench) askReport(ctx context.Context) error {
	const reports = 100
	s := newNodeServer("")
	defer s.Close()
	kubeconfig, err := s.kubeconfig(a.dir)
	if err != nil {
		return err
	}
	var cold, warm []time.Duration
	for range reports {
		client, err := kubeapi.FromKubeconfig(kubeconfig, kubeapi.Options{Now: clk.Now})
		if err != nil {
			return err
		}
		r := newReporter(client)
		for _, into := range []*[]time.Duration{&cold, &warm} {
			begun := monotonic()
			if err := r.Report(ctx, "process-match: bench", clk.Now()); err != nil {
				return err
			}
			*into = append(*into, monotonic()-begun)
		}
	}
	n := s.requests.Load()
	a.add(one("G13 requests per report", "requests", 2*reports, float64(n)/(2*reports)).goal("1", n == 2*reports))
	first := spread("G13 report over a new connection", cold)
	f := spread("G13 report over one that is there", warm).against("new", first)
	a.add(first)
	a.add(f.goal("≤ 0.3 × new", f.within(.3)))
	return nil
}

func newReporter(client agentreport.Client) *agentreport.Reporter {
	return agentreport.New(agentreport.Options{Client: client, Node: nodeName, MachineID: machineID, Log: slog.New(slog.DiscardHandler), Now: clk.Now})
}

// askSize measures the agent's memory after a report, and the size of its program, against a minimal program on
// client-go's typed clientset.
func (a *agentBench) askSize(ctx context.Context) error {
	released := filepath.Join(a.bin, "reclaim-agent")
	size, err := os.Stat(released)
	if err != nil {
		return unmeasured("run `make build`: %v", err)
	}
	typed, err := a.build(ctx, "./bench/typed", "typed")
	if err != nil {
		return err
	}
	typedSize, err := os.Stat(typed)
	if err != nil {
		return err
	}
	var ours, theirs []float64
	for range a.rounds {
		for program, into := range map[string]*[]float64{released: &ours, typed: &theirs} {
			rss, err := a.resident(ctx, program)
			if err != nil {
				return err
			}
			*into = append(*into, rss)
		}
	}
	f := spreadOf("G11 memory after a report, agent", "MiB", ours).against("typed clientset", spreadOf("", "", theirs))
	a.add(f.goal("≤ 12", f.Max <= 12))
	mib := func(what string, s os.FileInfo) figure { return one(what, "MiB", 1, float64(s.Size())/(1<<20)) }
	f = mib("G11 program, agent", size).against("typed clientset", mib("", typedSize))
	a.add(f.goal("≤ 0.4 × typed clientset", f.within(.4)))
	return nil
}

var vmRSS = regexp.MustCompile(`(?m)^VmRSS:\s*(\d+) kB`)

// resident runs an agent until it has reported, and returns its memory in MiB.
func (a *agentBench) resident(ctx context.Context, program string) (float64, error) {
	s := newNodeServer(fmt.Sprintf("match_argv_substrings = [%q]", a.pattern))
	defer s.Close()
	defer s.CloseClientConnections()
	kubeconfig, err := s.kubeconfig(a.dir)
	if err != nil {
		return 0, err
	}
	identity := filepath.Join(a.dir, "machine-id")
	if err := os.WriteFile(identity, []byte(machineID), 0o600); err != nil {
		return 0, err
	}
	c, err := startChild(ctx, program, []string{"--kubeconfig=" + kubeconfig, "--machine-id-path=" + identity, "--node-name=" + nodeName}, nil, 0)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	if err := pause(ctx, 2*settleFor); err != nil {
		return 0, err
	}
	end, err := spawn(1, a.sleeper, a.pattern)
	if err != nil {
		return 0, err
	}
	defer end()
	select {
	case <-s.patched:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(patienceReady): //nolint:forbidigo // no event marks the end
		return 0, fmt.Errorf("no report: %s", c.tail())
	}
	if err := pause(ctx, time.Second); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid()))
	if err != nil {
		return 0, err
	}
	m := vmRSS.FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("%s has no memory", program)
	}
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	return kib / 1024, err
}
