// SPDX-License-Identifier: Apache-2.0

// Package apiclock answers one question: do our clock and the API server's agree? Every answer
// of the API server tells its time, and so nothing is asked for it. It does not know what
// follows from the answer.
package apiclock

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// precision is that of the time in an answer.
const precision = time.Second

// A Clock compares our clock with the API server's. Make one with New; nil trusts our clock.
// It is safe for concurrent use.
type Clock struct {
	ours clock.PassiveClock

	mu      sync.Mutex
	gate    rails.Clock
	changed func()
}

// New returns a Clock that compares ours, and has not heard of the API server yet.
func New(ours clock.PassiveClock) *Clock { return &Clock{ours: ours} }

// OnChange has f be called whenever the trust in our clock changes. There is one f.
func (c *Clock) OnChange(f func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = f
}

// Trust says what to make of our clock by the last answers.
func (c *Clock) Trust() rails.Trust {
	if c == nil {
		return rails.Sane
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate.Trust()
}

// sample takes a time that the API server told between two instants of our clock. Our clock
// differs by no more than these prove: an answer that was long on its way proves little.
func (c *Clock) sample(told, sent, received time.Time) {
	var ahead time.Duration
	switch {
	case sent.After(told.Add(precision)):
		ahead = sent.Sub(told.Add(precision))
	case received.Before(told):
		ahead = received.Sub(told)
	}
	telemetry.ClockSkew(ahead)
	if changed := c.take(ahead); changed != nil {
		changed()
	}
}

// take takes a sample, and returns who is to hear of it.
func (c *Clock) take(ahead time.Duration) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.gate.Trust()
	c.gate = c.gate.Sample(ahead)
	if c.gate.Trust() == was {
		return nil
	}
	return c.changed
}

// Transport returns a transport that listens to the time in each answer. Answers that say that
// a server is broken may come from somebody in between, and tell nothing.
func (c *Clock) Transport(next http.RoundTripper) http.RoundTripper { return &transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

// WrappedRoundTripper lets client-go close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := t.clock.ours.Now()
	res, err := t.next.RoundTrip(req)
	if err != nil || res.StatusCode >= http.StatusInternalServerError {
		return res, err
	}
	if told, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		t.clock.sample(told, sent, t.clock.ours.Now())
	}
	return res, nil
}
