// SPDX-License-Identifier: Apache-2.0

// Package detect answers one question: which processes match, as they appear?
// Two detectors share one contract and one decision: the kernel announces
// processes, or they are polled. The package knows nothing about Kubernetes.
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

// A Mode says which detector to use.
type Mode string

const (
	// Auto listens to the kernel, and polls for as long as the kernel does not
	// announce processes.
	Auto Mode = "auto"
	// Netlink listens to the kernel or fails.
	Netlink Mode = "netlink"
	// Poll polls.
	Poll Mode = "poll"
)

const (
	// retryEvery is how often Auto, while polling, tries to listen again.
	retryEvery = 5 * time.Minute

	// passEvery is how often all processes are looked at while listening, for
	// what nothing announces, such as arguments that a program rewrites. passCost
	// is the share of one core that may take, as a divisor.
	passEvery = time.Minute
	passCost  = 1000
	// blindEvery is how often all processes are looked at while some are hidden.
	blindEvery = time.Second

	// againEvery is how often to ask, while listening, whether a process that was
	// put aside can be read by now.
	againEvery = 250 * time.Millisecond

	// shortLived is a subscription that ended too soon to subscribe again at once.
	shortLived = time.Second
)

// A Match is a process that matched and counts.
type Match struct {
	PID int
	// Start is the start time, as in [process.Standing]; zero if unknown.
	Start uint64
	match.Hit
	// Detector is what found it.
	Detector Mode
	// Latency is the time since the kernel announced it, zero if it did not.
	Latency time.Duration
}

// Events is a subscription to process events, as [procevents.Conn] is.
type Events interface {
	Next(until time.Time) ([]procevents.Event, error)
	Close() error
}

// Options are what a Detector needs. All but Dial are required.
type Options struct {
	Mode Mode
	// Open opens the processes for one run.
	Open func() (*process.Table, error)
	// Dial subscribes, with or without a socket filter. Nil means
	// [procevents.Dial].
	Dial    func(unfiltered bool) (Events, error)
	Log     *slog.Logger
	Now     func() time.Time
	Metrics *metrics.Set
	// CPUTime returns the CPU time that the process has used. Nil means [CPUTime]. Wall time would make polls rare
	// on a busy machine.
	CPUTime func() time.Duration
}

// A Detector finds processes that match. One goroutine may use it at a time.
type Detector struct {
	o Options
	// warned says that the lack of a connector was logged.
	warned bool
	// silenced says that the kernel fell silent once. A filter may be what it
	// cannot bear, see [procevents.Options]: from then on there is none.
	silenced atomic.Bool
	// aside holds what hangs whoever reads it, from one run to the next.
	aside process.Aside
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

// Run calls emit for every process that matches m, once for each, until ctx is
// done, which is no error: for those that run already as for those that appear.
// In mode Netlink it returns [procevents.ErrUnavailable] if the kernel does not
// announce processes. interval is the time between polls.
func (d *Detector) Run(ctx context.Context, m *match.Matcher, interval time.Duration, emit func(Match)) error {
	table, err := d.open()
	if err != nil {
		return err
	}
	j := d.judge(table, m, emit)
	defer func() { _ = j.table.Close() }()
	defer d.o.Metrics.SetDetector("")
	if d.o.Mode == Poll {
		_, err := d.poll(ctx, j, interval, nil)
		return err
	}
	err = d.listenOrPoll(ctx, j, interval)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Scan returns the processes that match m now, in ascending order of pid. The error wraps
// [process.ErrHidden] if there may be others, which cannot be read.
func (d *Detector) Scan(m *match.Matcher) ([]Match, error) {
	table, err := d.open()
	if err != nil {
		return nil, err
	}
	var found []Match
	j := d.judge(table, m, func(m Match) { found = append(found, m) })
	defer func() { _ = j.table.Close() }()
	j.detector = Poll
	err = j.guarded(func() error { return d.rescan(j) })
	return found, errors.Join(err, j.visible)
}

func (d *Detector) open() (*process.Table, error) {
	table, err := d.o.Open()
	if err == nil {
		table.Share(&d.aside)
	}
	return table, err
}

// listenOrPoll listens for as long as it can, subscribing again whenever the
// kernel falls silent.
func (d *Detector) listenOrPoll(ctx context.Context, j *judge, interval time.Duration) error {
	conn, err := d.dial()
	for ctx.Err() == nil {
		if err != nil {
			if conn, err = d.fallBack(ctx, j, interval, err); err != nil || conn == nil {
				return err
			}
		}
		begun := d.o.Now()
		lost := d.listen(ctx, j, conn)
		if ctx.Err() != nil {
			break
		}
		if !errors.Is(lost, procevents.ErrSilent) && d.o.Now().Sub(begun) < shortLived {
			err = lost // subscribing again at once would spin
			continue
		}
		d.o.Log.Warn("Subscribing again", "err", lost)
		conn, err = d.dial()
	}
	if err == nil {
		_ = conn.Close() // it may have come too late to be listened to
	}
	return ctx.Err()
}

// fallBack polls until there is a subscription, unless the mode is Netlink. It
// says why, once.
func (d *Detector) fallBack(ctx context.Context, j *judge, interval time.Duration, cause error) (Events, error) {
	if d.o.Mode == Netlink {
		return nil, cause
	}
	if !d.warned {
		d.warned = true
		d.o.Log.Warn("Polling, because the kernel does not announce processes", "err", cause, "retryEvery", retryEvery.String())
	}
	conn, err := d.poll(ctx, j, interval, d.redial)
	if conn != nil {
		d.warned = false
		d.o.Log.Info("Listening to the kernel again")
	}
	return conn, err
}

// listen looks at all processes, then at what the kernel announces, until the
// subscription ends. What was announced meanwhile has queued.
func (d *Detector) listen(ctx context.Context, j *judge, conn Events) error {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	j.begin(Netlink)
	l := &listening{d: d, j: j, conn: conn}
	return j.guarded(func() error { return l.run(ctx) })
}

// listening is what one goroutine that listens leaves to the next.
type listening struct {
	d    *Detector
	j    *judge
	conn Events
	// pass is when to look at all processes, and soonest when that may be at a cost
	// that is bounded.
	pass, soonest time.Time
	// events were announced and are yet to be heard; lost is what came with them.
	events []procevents.Event
	lost   error
}

func (l *listening) run(ctx context.Context) error {
	for {
		if err := l.hear(); err != nil || ctx.Err() != nil {
			return err
		}
		until, err := l.look()
		if err != nil {
			return err
		}
		l.events, l.lost = l.conn.Next(until)
	}
}

// hear takes what was announced, one by one: whoever hangs on one leaves the rest.
func (l *listening) hear() error {
	for len(l.events) > 0 {
		e := &l.events[0]
		l.events = l.events[1:]
		l.j.hear(e)
	}
	if l.j.hidden {
		l.j.hidden = false
		l.pass = l.soonest
	}
	lost := l.lost
	l.lost = nil
	switch {
	case errors.Is(lost, procevents.ErrOverrun):
		l.d.o.Metrics.Overruns.Add(1)
		l.pass = time.Time{}
	case errors.Is(lost, procevents.ErrSilent):
		l.d.o.Metrics.Silences.Add(1)
		l.d.silenced.Store(true)
		return lost
	case lost != nil:
		return lost
	}
	return nil
}

// look looks at what is not announced: everything, when it is time, and those that
// could not be read before. It returns when to look again.
func (l *listening) look() (until time.Time, err error) {
	now := l.d.o.Now
	if !now().Before(l.pass) {
		used := l.d.o.CPUTime()
		if err := l.d.rescan(l.j); err != nil {
			return time.Time{}, err
		}
		ended, cost := now(), passCost*(l.d.o.CPUTime()-used)
		l.pass, l.soonest = ended.Add(max(passEvery, cost)), ended.Add(max(blindEvery, cost))
		if l.j.visible != nil {
			l.pass = l.soonest
		}
	}
	until = l.pass
	if l.j.hanging {
		l.j.again()
		if again := now().Add(againEvery); again.Before(until) {
			until = again
		}
	}
	return until, nil
}

// dial subscribes.
func (d *Detector) dial() (Events, error) { return d.o.Dial(d.silenced.Load()) }

func (d *Detector) rescan(j *judge) error {
	d.o.Metrics.Rescans.Add(1)
	return j.pass((*process.Table).Walk)
}

// redial tries to subscribe every now and then until ctx is done, and hands over
// the first subscription that works.
func (d *Detector) redial(ctx context.Context, found chan<- Events) {
	ticker := time.NewTicker(retryEvery)
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

// ParseMode reads a Mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Auto, Netlink, Poll:
		return m, nil
	default:
		return "", fmt.Errorf("detector %q is none of auto, netlink, poll", s)
	}
}
