// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// firstRetry and lastRetry bound the retry delay, before jitter. They apply to the first read of the Node and to the
// metrics listener.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
)

type detector interface {
	Run(ctx context.Context, m *match.Matcher, interval time.Duration, emit func(detect.Match)) error
	Scan(m *match.Matcher) ([]detect.Match, error)
}

type reporter interface {
	Requested(ctx context.Context) (bool, error)
	Deliver(ctx context.Context, reason string, at time.Time) error
	AwaitCleared(ctx context.Context) error
	AwaitRequested(ctx context.Context) error
}

type stateReporter interface {
	SetConfig(c reclaim.Config)
	SetIdle(c reclaim.Config)
}

type holder interface {
	Matched(ctx context.Context, at time.Time)
	Requested()
	Refuse(reason string)
}

// loop is the main loop of the agent. While the Node has a request, it waits until that is cleared. Without patterns it
// waits for a Config. Otherwise, it watches processes and acts on the first match.
type loop struct {
	log           *slog.Logger
	now           func() time.Time
	counts        *metrics.Set
	detector      detector
	reporter      reporter
	stateReporter stateReporter
	holder        holder
	configs       report.Latest[reclaim.Config]
	// config is the last Config. loaded means that there was one.
	config reclaim.Config
	loaded bool
}

func (l *loop) take(c reclaim.Config) { l.config, l.loaded = c, true }

func (l *loop) run(ctx context.Context) error {
	requested := l.readNode(ctx)
	for ctx.Err() == nil {
		// Apply a Config that arrived in the meantime first.
		select {
		case c := <-l.configs:
			l.take(c)
		default:
		}
		var err error
		switch {
		case requested:
			l.log.Info("Waiting until the request is cleared")
			err = l.reporter.AwaitCleared(ctx)
			requested = false
		case l.config.Inert():
			l.idle(ctx)
		default:
			requested, err = l.watch(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// readNode reads the Node before any write, so that the agent does not repeat an existing request. It retries while the
// server is unreachable or overloaded. If the server refuses the read, readNode returns false, because the server may
// still accept a report.
func (l *loop) readNode(ctx context.Context) (requested bool) {
	for backoff := (retry.Backoff{First: firstRetry, Last: lastRetry}); ctx.Err() == nil; {
		requested, err := l.reporter.Requested(ctx)
		switch {
		case err == nil:
			return requested
		case errors.Is(err, report.ErrHostIdentity):
			l.log.Error("A match will not be reported", "err", err)
			return requested
		case report.IsRefusal(err):
			l.log.Error("Starting without having read the Node", "err", err)
			return false
		case ctx.Err() == nil:
			l.log.Warn("Reading the Node", "err", err)
		}
		_ = retry.Sleep(ctx, backoff.Next())
	}
	return false
}

// idle waits for the next Config. It reports that the current one has no patterns.
func (l *loop) idle(ctx context.Context) {
	l.log.Debug("Configuration has no patterns")
	if l.loaded {
		l.stateReporter.SetIdle(l.config)
	}
	select {
	case <-ctx.Done():
	case c := <-l.configs:
		l.take(c)
	}
}

// watch runs the detector until a process matches, and acts on the match. If the Config changes first, it stores the
// new one and returns. With a hold, watch also returns when a person requests the machine.
func (l *loop) watch(ctx context.Context) (requested bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	found, ended := make(chan detect.Match, 1), make(chan error, 1)
	l.log.Info("Watching processes", "matchCommands", l.config.MatchCommands,
		"matchArgvSubstrings", l.config.MatchArgvSubstrings, "pollInterval", l.config.Interval().String())
	matcher, interval := compile(l.config, l.log), l.config.Interval()
	l.stateReporter.SetConfig(l.config)
	go func() {
		ended <- l.detector.Run(inner, matcher, interval, func(m detect.Match) {
			select {
			case found <- m:
			default: // one request is enough
			}
		})
	}()
	select {
	case m := <-found:
		// Act first: stopping the detector would delay the report.
		err = l.act(ctx, m)
		cancel()
		return err == nil, errors.Join(err, <-ended)
	case <-l.requestedByPerson(inner):
		cancel()
		return true, <-ended
	case c := <-l.configs:
		l.take(c)
		cancel()
		err = <-ended
	case err = <-ended:
	}
	// An earlier match counts, even if the new Config has other patterns.
	select {
	case m := <-found:
		err = l.act(ctx, m)
		return err == nil, err
	default:
		return false, err
	}
}

// requestedByPerson returns a channel that is closed when the Node has a request of a person. Without a hold nothing
// would follow from it, so the agent does not read the Node.
func (l *loop) requestedByPerson(ctx context.Context) <-chan struct{} {
	if !l.config.Hold.Enabled() {
		return nil
	}
	requested := make(chan struct{})
	go func() {
		if l.reporter.AwaitRequested(ctx) == nil {
			close(requested)
		}
	}()
	return requested
}

// act reports a match. With a hold, it freezes the pods first, for a bounded time, and confirms the hold when the
// request is on the Node. The log does not contain the arguments of the process, which may hold secrets.
func (l *loop) act(ctx context.Context, m detect.Match) error {
	at := l.now()
	l.log.Info("Process matches", "pid", m.PID, "pattern", m.Pattern, "source", string(m.Source),
		"detector", string(m.Detector), "latency", m.Latency.String())
	if !l.config.Hold.Enabled() {
		return l.report(ctx, m, at)
	}
	l.holder.Matched(ctx, at)
	if err := l.report(ctx, m, at); err != nil {
		return err
	}
	l.holder.Requested()
	return nil
}

// report writes the request to the Node.
func (l *loop) report(ctx context.Context, m detect.Match, at time.Time) error {
	err := l.reporter.Deliver(ctx, reclaim.Reason(m.Pattern), at)
	switch {
	case errors.Is(err, report.ErrHostIdentity):
		l.counts.Refusals.Add(1)
		l.holder.Refuse(err.Error())
		return fmt.Errorf("refusing to report: %w", err)
	case err != nil:
		return err
	}
	l.counts.Reports.Add(1)
	l.log.Info("Requested the machine back", "reason", reclaim.Reason(m.Pattern), "took", l.now().Sub(at).String())
	return nil
}

// once implements --oneshot: it checks all processes once. It returns [ErrNothing] if there are no patterns, or no
// process matches.
func (l *loop) once(ctx context.Context, read func(context.Context) (reclaim.Config, error)) error {
	c, err := read(ctx)
	if err != nil {
		return err
	}
	if c.Inert() {
		return fmt.Errorf("%w: no patterns are configured", ErrNothing)
	}
	requested, err := l.reporter.Requested(ctx)
	if err != nil || requested {
		return err
	}
	matches, err := l.detector.Scan(compile(c, l.log))
	switch {
	case len(matches) > 0: // One match is enough, even if other processes are hidden.
	case err != nil:
		return err
	default:
		return fmt.Errorf("%w: no process matches", ErrNothing)
	}
	ctx, cancel := context.WithTimeout(ctx, oneshotTimeout)
	defer cancel()
	return l.act(ctx, matches[0])
}
