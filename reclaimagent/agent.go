// SPDX-License-Identifier: Apache-2.0

// Package reclaimagent answers one question: does the owner of this machine want
// it back? It joins what the ConfigMap asks for, what runs on the machine and
// what the Node is told. It never touches the owner's processes, and never acts
// for another node.
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
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// oneshotPatience bounds how long --oneshot tries to report.
const oneshotPatience = 30 * time.Second

// ErrNothing reports that --oneshot had nothing to report.
var ErrNothing = errors.New("nothing to report")

// World is what the agent uses besides its Options.
type World struct {
	Log    *slog.Logger
	Now    func() time.Time
	Getenv func(string) string
}

// Run is the agent. It returns when ctx is done, which is no error, or when it
// cannot go on; see [ExitCode].
func Run(ctx context.Context, o Options, w World) error {
	counts := &metrics.Set{}
	l, source, err := assemble(o, w, counts)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	if o.MetricsAddress != "" {
		background.Go(func() { serve(ctx, o.MetricsAddress, w.Log, counts) })
	}
	if o.Oneshot {
		return l.once(ctx, source.Get)
	}
	background.Go(func() { source.Run(ctx) })
	background.Go(func() { l.reporter.KeepWarm(ctx) })
	background.Go(func() { l.teller.Run(ctx) })
	return l.run(ctx)
}

// assemble makes the parts, and finds out what is missing before anything runs.
func assemble(o Options, w World, counts *metrics.Set) (*loop, *configmap.Source, error) {
	mode, err := detect.ParseMode(o.Detector)
	if err != nil {
		return nil, nil, err
	}
	open := func() (*process.Table, error) { return process.Open(o.ProcRoot) }
	table, err := open()
	if err != nil {
		return nil, nil, err
	}
	_ = table.Close()
	machineID := ""
	if !o.SkipHostIDCheck {
		if machineID, err = report.ReadMachineID(o.MachineIDPath); err != nil {
			return nil, nil, err
		}
	}
	client, err := connect(o, w)
	if err != nil {
		return nil, nil, err
	}
	reporting := report.Options{Client: client, Node: o.NodeName, MachineID: machineID, Log: w.Log, Now: w.Now}
	teller := report.NewTeller(reporting, counts.Told.Store)
	counts.OnDetector = teller.Use
	l := &loop{
		log: w.Log, now: w.Now, counts: counts, configs: make(mailbox, 1),
		detector: detect.New(detect.Options{Mode: mode, Open: open, Log: w.Log, Now: w.Now, Metrics: counts}),
		reporter: report.New(reporting), teller: teller,
	}
	return l, configmap.New(client, o.NodeName, w.Log, l.configs.put), nil
}

func connect(o Options, w World) (*kubeapi.Client, error) {
	options := kubeapi.Options{Now: w.Now, Getenv: w.Getenv}
	if o.Kubeconfig != "" {
		return kubeapi.FromKubeconfig(o.Kubeconfig, options)
	}
	return kubeapi.InCluster(options)
}

// serve serves metrics until ctx is done. A port that another program has, as one of
// the owner's may, is tried again: nobody gets a machine back by metrics.
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

// mailbox holds the newest Config that was not yet taken.
type mailbox chan reclaim.Config

// put replaces what was not taken. One goroutine puts.
func (m mailbox) put(c reclaim.Config) {
	select {
	case <-m:
	default:
	}
	m <- c
}

// compile makes a matcher, and says what can never match.
func compile(c reclaim.Config, log *slog.Logger) *match.Matcher {
	if long := match.TooLong(c.MatchCommands); len(long) > 0 {
		log.Warn("The kernel keeps 15 bytes of a name, so these never equal one; as substrings of arguments they still work", "matchCommands", long)
	}
	return match.New(c.MatchCommands, c.MatchArgvSubstrings)
}
