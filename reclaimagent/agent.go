// SPDX-License-Identifier: Apache-2.0

// Package reclaimagent is the agent that runs on a borrowed machine. It reads patterns from a ConfigMap, and watches
// the machine's processes. When a process of the owner matches, it requests the machine back by annotations of its
// Node. If its configuration has a hold, it freezes the pods of the machine first. It never changes the owner's
// processes, and never writes another Node.
package reclaimagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/configmap"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// oneshotTimeout is the timeout of the report of --oneshot.
const oneshotTimeout = 30 * time.Second

// lastReadTimeout bounds the read of the Node by an agent that ends, and holds pods.
const lastReadTimeout = 2 * time.Second

// ErrNothing means that --oneshot or check found no match.
var ErrNothing = errors.New("nothing to report")

// Environment holds the logger, clock and environment of the agent.
type Environment struct {
	Log    *slog.Logger
	Now    func() time.Time
	Getenv func(string) string
}

// Run runs the agent until ctx is done, which is no error, or until a permanent failure. [ExitCode] maps the error.
func Run(ctx context.Context, o Options, env Environment) error {
	counts := &metrics.Set{}
	l, source, background, err := assemble(o, env, counts)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if o.MetricsAddress != "" {
		running.Go(func() { serve(ctx, o.MetricsAddress, env.Log, counts) })
	}
	if o.Oneshot {
		return l.once(ctx, source.Get)
	}
	for _, run := range background {
		running.Go(func() { run(ctx) })
	}
	return l.run(ctx)
}

// assemble creates all parts, and returns the ones that run in the background. It returns an error if a required file
// or option is missing.
func assemble(o Options, env Environment, counts *metrics.Set) (*loop, *configmap.Source, []func(context.Context), error) {
	mode, err := detect.ParseMode(o.Detector)
	if err != nil {
		return nil, nil, nil, err
	}
	open := func() (*process.Table, error) { return process.Open(o.ProcRoot) }
	table, err := open()
	if err != nil {
		return nil, nil, nil, err
	}
	_ = table.Close()
	machineID := ""
	if !o.SkipHostIDCheck {
		if machineID, err = report.ReadMachineID(o.MachineIDPath); err != nil {
			return nil, nil, nil, err
		}
	}
	client, err := connect(o, env)
	if err != nil {
		return nil, nil, nil, err
	}
	reporting := report.Options{Client: client, Node: o.NodeName, MachineID: machineID, Log: env.Log, Now: env.Now}
	stateReporter := report.NewStateReporter(reporting, counts.StateReported.Store)
	counts.OnDetector = stateReporter.SetDetector
	holdReporter := report.NewHoldReporter(reporting)
	var reporter *report.Reporter
	holder := hold.New(hold.Options{
		CgroupRoot: o.CgroupRoot, ProcRoot: o.ProcRoot, Log: env.Log, Now: env.Now, Metrics: counts, Report: holdReporter.Set,
		LastRead: func(ctx context.Context) { reporter.Refresh(ctx, lastReadTimeout) },
	})
	reporting.Holder = holder
	reporter = report.New(reporting)
	configs := report.NewLatest[reclaim.Config]()
	source := configmap.New(client, o.NodeName, env.Log, func(c reclaim.Config) {
		holder.Configure(c) // before a match of this Config
		configs.Put(c)
	})
	l := &loop{
		log: env.Log, now: env.Now, counts: counts, configs: configs,
		detector: detect.New(detect.Options{Mode: mode, Open: open, Log: env.Log, Now: env.Now, Metrics: counts}),
		reporter: reporter, stateReporter: stateReporter, holder: holder,
	}
	return l, source, []func(context.Context){source.Run, reporter.KeepWarm, stateReporter.Run, holdReporter.Run, holder.Run}, nil
}

func connect(o Options, env Environment) (*kubeapi.Client, error) {
	options := kubeapi.Options{Now: env.Now, Getenv: env.Getenv}
	if o.Kubeconfig != "" {
		return kubeapi.FromKubeconfig(o.Kubeconfig, options)
	}
	return kubeapi.InCluster(options)
}

// serve serves metrics until ctx is done. It retries while the port is in use, for example by a program of the owner,
// because the agent works without metrics.
func serve(ctx context.Context, address string, log *slog.Logger, counts *metrics.Set) {
	backoff := retry.Backoff{First: firstRetry, Last: lastRetry}
	for warned := false; ; warned = true {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			log.Info("Serving metrics", "address", listener.Addr().String())
			err = counts.Serve(ctx, listener)
		}
		if ctx.Err() != nil {
			return
		}
		if !warned {
			log.Error("Not serving metrics for now; processes are watched all the same", "address", address, "err", err)
		}
		if retry.Sleep(ctx, backoff.Next()) != nil {
			return
		}
	}
}

// compile creates a matcher, and logs commands that can never match.
func compile(c reclaim.Config, log *slog.Logger) *match.Matcher {
	if long := match.TooLong(c.MatchCommands); len(long) > 0 {
		log.Warn("The kernel keeps 15 bytes of a name, so these never equal one; as substrings of arguments they still work", "matchCommands", long)
	}
	return match.New(c.MatchCommands, c.MatchArgvSubstrings)
}
