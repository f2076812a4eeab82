// SPDX-License-Identifier: Apache-2.0

// Package apiclock detects that the clock of this process may be wrong. It has two witnesses: the Date header of
// each answer of the API server, and the monotonic clock of the process. It sends no requests of its own.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// precision is the precision of the Date header.
const precision = time.Second

// settling is how long the clock stays suspect after a step: a time daemon, or a person, may still correct it.
const settling = 5 * time.Minute

// Clock compares the clock of this process with the API server's, and with the monotonic clock. New returns one.
// A nil Clock is always sane. It is safe for concurrent use.
type Clock struct {
	local clock.PassiveClock
	// elapsed returns the monotonic time between two readings of ours.
	elapsed func(from, to time.Time) time.Duration

	mu   sync.Mutex
	gate rails.Clock
	// last is the latest reading. stepped is the reading at which step, the latest step, was detected.
	last, stepped time.Time
	step          time.Duration
	changed       func()
}

// New returns a Clock that has no sample yet: its trust is Unsampled.
func New(local clock.PassiveClock) *Clock {
	return &Clock{local: local, elapsed: func(from, to time.Time) time.Duration { return to.Sub(from) }}
}

// OnChange registers the function that is called when Trust changes. A second call replaces it.
func (c *Clock) OnChange(f func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = f
}

// Trust returns the trust after the latest answer of the API server, and after a step of the clock since then.
func (c *Clock) Trust() rails.Trust {
	if c == nil {
		return rails.Trusted
	}
	now := c.local.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if step := c.stepSince(now); step != 0 {
		c.gate = c.gate.Sample(step)
	}
	return c.gate.Trust()
}

// sample records a Date header that the API server wrote between two readings. The difference is the least that these
// prove: a slow answer proves little.
func (c *Clock) sample(date, sent, received time.Time) {
	var ahead time.Duration
	switch {
	case sent.After(date.Add(precision)):
		ahead = sent.Sub(date.Add(precision))
	case received.Before(date):
		ahead = received.Sub(date)
	}
	if changed := c.record(ahead, received); changed != nil {
		changed()
	}
}

// record returns the function to call, nil if Trust has not changed.
func (c *Clock) record(ahead time.Duration, now time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step := c.stepSince(now); step.Abs() > ahead.Abs() {
		ahead = step
	}
	telemetry.ClockSkew(ahead)
	was := c.gate.Trust()
	c.gate = c.gate.Sample(ahead)
	if c.gate.Trust() == was {
		return nil
	}
	return c.changed
}

// stepSince returns by how much the wall clock was set within settling, zero if it was not. A host that slept counts:
// CLOCK_MONOTONIC stops during suspend (clock_gettime(2)). The API server may share the clock, so it cannot see a step.
func (c *Clock) stepSince(now time.Time) time.Duration {
	if !c.last.IsZero() {
		step := now.Round(0).Sub(c.last.Round(0)) - c.elapsed(c.last, now)
		if step.Abs() > rails.MaxSkew {
			c.step, c.stepped = step, now
		}
	}
	c.last = now
	if c.stepped.IsZero() || c.elapsed(c.stepped, now) >= settling {
		return 0
	}
	return c.step
}

// Transport returns a transport that samples each answer. It skips answers with a status of 500 or more, which a proxy
// with another clock may have written.
func (c *Clock) Transport(next http.RoundTripper) http.RoundTripper { return &transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

// WrappedRoundTripper lets client-go close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := t.clock.local.Now()
	res, err := t.next.RoundTrip(req)
	if err != nil || res.StatusCode >= http.StatusInternalServerError {
		return res, err
	}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		t.clock.sample(date, sent, t.clock.local.Now())
	}
	return res, nil
}
