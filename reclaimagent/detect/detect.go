// SPDX-License-Identifier: Apache-2.0

// Package detect finds processes that match the patterns, as soon as they appear. It has two detectors: netlink
// receives process events of the kernel, poll scans /proc. Both use the same evaluator.
package detect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
)

// Mode selects the detector.
type Mode string

const (
	// Auto uses netlink, and polls while the kernel does not announce processes.
	Auto Mode = "auto"
	// Netlink uses the kernel's events, or fails.
	Netlink Mode = "netlink"
	// Poll polls.
	Poll Mode = "poll"
)

const (
	// redialInterval is the interval at which Auto retries netlink while it polls.
	redialInterval = 5 * time.Minute

	// scanInterval is the interval between scans of all processes with netlink. Scans find changes without events, such
	// as rewritten arguments. scanCost bounds their CPU use, as a divisor of one core.
	scanInterval = time.Minute
	scanCost     = 1000
	// blindScanInterval is the interval between scans while processes are hidden.
	blindScanInterval = time.Second

	// recoveryCheckInterval is the interval, with netlink, between checks whether blocked arguments can be read.
	recoveryCheckInterval = 250 * time.Millisecond

	// minSubscription is the minimum duration of a subscription. After a shorter one, the detector does not subscribe
	// again at once, unless it ended with ErrSilent.
	minSubscription = time.Second
)

// Match is a process of the owner that matched.
type Match struct {
	PID int
	match.Hit
	// Detector is the detector that found the process.
	Detector Mode
	// Latency is the time since the kernel's event, zero if there was none.
	Latency time.Duration
}

// Events is a subscription to process events. [procevents.Conn] implements it.
type Events interface {
	Next(until time.Time) ([]procevents.Event, error)
	Close() error
}

// Options are the dependencies of a Detector. All except Dial and CPUTime are required.
type Options struct {
	Mode Mode
	// Open opens the table of processes for one run.
	Open func() (*process.Table, error)
	// Dial subscribes to events, with or without a socket filter. Nil means [procevents.Dial].
	Dial    func(unfiltered bool) (Events, error)
	Log     *slog.Logger
	Now     func() time.Time
	Metrics *metrics.Set
	// CPUTime returns the CPU time that this process has used. Nil means [CPUTime]. Wall time would make polls rare on
	// a busy machine.
	CPUTime func() time.Duration
}

// Detector finds processes that match. It is not safe for concurrent use.
type Detector struct {
	o Options
	// warned means that the failure of netlink was logged.
	warned bool
	// missedHeartbeat means that a heartbeat was missed once. The socket filter may be the cause, see
	// [procevents.Options], so all later subscriptions have none.
	missedHeartbeat atomic.Bool
	// hungProcesses holds the processes whose arguments block readers, across runs.
	hungProcesses process.HungProcesses
}

// New returns a Detector.
func New(o Options) *Detector {
	if o.Dial == nil {
		o.Dial = func(unfiltered bool) (Events, error) {
			return procevents.Dial(procevents.Options{Now: o.Now, Unfiltered: unfiltered})
		}
	}
	if o.CPUTime == nil {
		o.CPUTime = CPUTime
	}
	return &Detector{o: o}
}

// Run calls emit once for every process that matches m, running or new, until ctx is done, which is no error. In mode
// Netlink it returns [procevents.ErrUnavailable] if the kernel does not announce processes. interval is the interval
// between polls.
func (d *Detector) Run(ctx context.Context, m *match.Matcher, interval time.Duration, emit func(Match)) error {
	v, err := d.newEvaluator(m, emit)
	if err != nil {
		return err
	}
	defer func() { _ = v.table.Close() }()
	defer d.o.Metrics.SetDetector("")
	if d.o.Mode == Poll {
		_, err := d.poll(ctx, v, interval, false)
		return err
	}
	err = d.listenOrPoll(ctx, v, interval)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Scan returns the processes that match m now, in ascending order of PID. The error wraps [process.ErrHidden] if there
// may be hidden ones.
func (d *Detector) Scan(m *match.Matcher) ([]Match, error) {
	var found []Match
	v, err := d.newEvaluator(m, func(m Match) { found = append(found, m) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.table.Close() }()
	v.detector = Poll
	err = v.guarded(func() error { return d.rescan(v) })
	return found, errors.Join(err, v.hiddenErr)
}

// listenOrPoll uses netlink as long as possible. It subscribes again at once after a missed heartbeat (ErrSilent).
// After another error it does so only if the subscription lasted minSubscription. It polls while no subscription works.
func (d *Detector) listenOrPoll(ctx context.Context, v *evaluator, interval time.Duration) error {
	conn, err := d.dial()
	for ctx.Err() == nil {
		if err != nil {
			if conn, err = d.fallBack(ctx, v, interval, err); err != nil || conn == nil {
				return err
			}
		}
		begun := d.o.Now()
		lost := d.listen(ctx, v, conn)
		if ctx.Err() != nil {
			break
		}
		if !errors.Is(lost, procevents.ErrSilent) && d.o.Now().Sub(begun) < minSubscription {
			err = lost // A new subscription at once could loop without a delay.
			continue
		}
		d.o.Log.Warn("Subscribing again", "err", lost)
		conn, err = d.dial()
	}
	if err == nil {
		_ = conn.Close() // ctx was done before the subscription was used.
	}
	return ctx.Err()
}

// fallBack polls until a subscription succeeds. In mode Netlink it returns cause. It logs the cause once.
func (d *Detector) fallBack(ctx context.Context, v *evaluator, interval time.Duration, cause error) (Events, error) {
	if d.o.Mode == Netlink {
		return nil, cause
	}
	if !d.warned {
		d.warned = true
		d.o.Log.Warn("Polling, because the kernel does not announce processes", "err", cause, "retryEvery", redialInterval.String())
	}
	conn, err := d.poll(ctx, v, interval, true)
	if conn != nil {
		d.warned = false
		d.o.Log.Info("Listening to the kernel again")
	}
	return conn, err
}

// listen scans all processes, and then handles events until the subscription ends. Events during the scan wait in the
// queue.
func (d *Detector) listen(ctx context.Context, v *evaluator, conn Events) error {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	v.begin(Netlink)
	l := &eventLoop{d: d, evaluator: v, conn: conn}
	return v.guarded(func() error { return l.run(ctx) })
}

// eventLoop is the state of listen. It survives an abandoned goroutine.
type eventLoop struct {
	d         *Detector
	evaluator *evaluator
	conn      Events
	// nextScan is the time of the next scan. earliestScan is the earliest time that respects scanCost.
	nextScan, earliestScan time.Time
	// events are received and not handled yet. lost is the error that came with them.
	events []procevents.Event
	lost   error
}

func (l *eventLoop) run(ctx context.Context) error {
	for {
		if err := l.handleEvents(); err != nil || ctx.Err() != nil {
			return err
		}
		until, err := l.scanIfDue()
		if err != nil {
			return err
		}
		l.events, l.lost = l.conn.Next(until)
	}
}

// handleEvents handles the received events one by one. The successor of an abandoned goroutine continues with the next
// event.
func (l *eventLoop) handleEvents() error {
	for len(l.events) > 0 {
		e := &l.events[0]
		l.events = l.events[1:]
		l.evaluator.handleEvent(e)
	}
	if l.evaluator.hidden {
		l.evaluator.hidden = false
		l.nextScan = l.earliestScan
	}
	lost := l.lost
	l.lost = nil
	switch {
	case errors.Is(lost, procevents.ErrOverrun):
		l.d.o.Metrics.Overruns.Add(1)
		l.nextScan = time.Time{}
	case errors.Is(lost, procevents.ErrSilent):
		l.d.o.Metrics.Silences.Add(1)
		l.d.missedHeartbeat.Store(true)
		return lost
	case lost != nil:
		return lost
	}
	return nil
}

// scanIfDue scans all processes when nextScan is due, and checks blocked processes. It returns when to do so again.
func (l *eventLoop) scanIfDue() (until time.Time, err error) {
	now := l.d.o.Now
	if !now().Before(l.nextScan) {
		used := l.d.o.CPUTime()
		if err := l.d.rescan(l.evaluator); err != nil {
			return time.Time{}, err
		}
		ended, cost := now(), scanCost*(l.d.o.CPUTime()-used)
		l.nextScan, l.earliestScan = ended.Add(max(scanInterval, cost)), ended.Add(max(blindScanInterval, cost))
		if l.evaluator.hiddenErr != nil {
			l.nextScan = l.earliestScan
		}
	}
	until = l.nextScan
	if l.evaluator.hanging {
		l.evaluator.visitRecovered()
		if again := now().Add(recoveryCheckInterval); again.Before(until) {
			until = again
		}
	}
	return until, nil
}

// dial subscribes.
func (d *Detector) dial() (Events, error) { return d.o.Dial(d.missedHeartbeat.Load()) }

func (d *Detector) rescan(v *evaluator) error {
	d.o.Metrics.Rescans.Add(1)
	return v.scanAll((*process.Table).Walk)
}

// redial tries to subscribe every redialInterval until ctx is done. It sends the first subscription to found.
func (d *Detector) redial(ctx context.Context, found chan<- Events) {
	ticker := time.NewTicker(redialInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		conn, err := d.dial()
		if err != nil {
			d.o.Log.Debug("Trying to listen to the kernel", "err", err)
			continue
		}
		select {
		case found <- conn:
		case <-ctx.Done():
			_ = conn.Close()
		}
		return
	}
}

// ParseMode parses a Mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Auto, Netlink, Poll:
		return m, nil
	default:
		return "", fmt.Errorf("detector %q is none of auto, netlink, poll", s)
	}
}
