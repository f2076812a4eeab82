// SPDX-License-Identifier: Apache-2.0

package apiclock_test

import (
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

var noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

// An apiServer answers with its time, after a while.
type apiServer struct {
	ours   *clocktesting.FakePassiveClock
	ahead  time.Duration // of our clock
	takes  time.Duration
	status int
	silent bool
}

func (s *apiServer) RoundTrip(*http.Request) (*http.Response, error) {
	s.ours.SetTime(s.ours.Now().Add(s.takes))
	res := &http.Response{StatusCode: s.status, Header: http.Header{}, Body: http.NoBody}
	if !s.silent {
		res.Header.Set("Date", s.ours.Now().Add(-s.ahead).UTC().Format(http.TimeFormat))
	}
	return res, nil
}

// sample sends a request to the API server, and returns the trust in the local clock after it.
func sample(t *testing.T, c *apiclock.Clock, s *apiServer) rails.Trust {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://lab.test/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Transport(s).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return c.Trust()
}

func TestTrustByDateHeaders(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		reason string
		server apiServer
		want   rails.Trust
	}{
		"Same":      {"", apiServer{status: 200}, rails.Trusted},
		"AMinute":   {"A minute is no harm, and the answer has no more than seconds.", apiServer{status: 200, ahead: 61*s - 1}, rails.Trusted},
		"Ahead":     {"", apiServer{status: 200, ahead: 63 * s}, rails.Suspect},
		"Behind":    {"", apiServer{status: 200, ahead: -62 * s}, rails.Suspect},
		"Slow":      {"It is unknown when during the call the header was written.", apiServer{status: 200, ahead: 80 * s, takes: 90 * s}, rails.Trusted},
		"NotFound":  {"It is the API server that says so.", apiServer{status: 404, ahead: time.Hour}, rails.Suspect},
		"Broken":    {"A proxy with another clock may have written the answer.", apiServer{status: 502, ahead: time.Hour}, rails.Unsampled},
		"SaysNever": {"An answer without a time is none.", apiServer{status: 200, silent: true}, rails.Unsampled},
	} {
		tc.server.ours = clocktesting.NewFakePassiveClock(noon)
		if got := sample(t, apiclock.New(tc.server.ours), &tc.server); got != tc.want {
			t.Errorf("%s: %d, want %d: %s", name, got, tc.want, tc.reason)
		}
	}
}

// TestOnChangeIsCalledOnEachChange has our clock be wrong, and be put right.
func TestOnChangeIsCalledOnEachChange(t *testing.T) {
	s := &apiServer{ours: clocktesting.NewFakePassiveClock(noon), status: 200}
	c, told := apiclock.New(s.ours), 0
	c.OnChange(func() { told++ })
	for i, step := range []struct {
		ahead time.Duration
		want  rails.Trust
		told  int
	}{
		{0, rails.Trusted, 1},
		{0, rails.Trusted, 1},
		{time.Hour, rails.Suspect, 2},
		{time.Hour, rails.Suspect, 2},
		{0, rails.Suspect, 2},
		{0, rails.Suspect, 2},
		{0, rails.Trusted, 3},
	} {
		s.ahead = step.ahead
		if got := sample(t, c, s); got != step.want || told != step.told {
			t.Errorf("step %d: %d, told %d times, want %d and %d", i, got, told, step.want, step.told)
		}
	}
}

// TestNilTrusts checks that a nil Clock is sane.
func TestNilTrusts(t *testing.T) {
	var c *apiclock.Clock
	c.OnChange(nil)
	if c.Trust() != rails.Trusted {
		t.Error("a nil Clock must be trusted")
	}
}

// TestAStepIsSuspect sets the wall clock of a host that runs the manager and the API server.
func TestAStepIsSuspect(t *testing.T) {
	for name, tc := range map[string]struct {
		step time.Duration
		want rails.Trust
	}{
		"SetForward":   {8 * time.Hour, rails.Suspect},
		"SetBack":      {-8 * time.Hour, rails.Suspect},
		"Sleeps":       {40 * time.Minute, rails.Suspect},
		"SlewedByNTP":  {time.Second, rails.Trusted},
		"SetByAMinute": {time.Minute, rails.Trusted},
	} {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{ours: clocktesting.NewFakePassiveClock(noon), status: 200}
			c := apiclock.New(s.ours)
			monotonic := map[time.Time]time.Duration{}
			c.Monotonic(func(from, to time.Time) time.Duration { return monotonic[to] - monotonic[from] })
			at := func(wall time.Time, elapsed time.Duration) {
				s.ours.SetTime(wall)
				monotonic[wall] = elapsed
			}
			const before, after = time.Minute, time.Minute + time.Second
			at(noon, 0)
			sample(t, c, s)
			at(noon.Add(before), before)
			if got := sample(t, c, s); got != rails.Trusted {
				t.Fatalf("before the step: %d", got)
			}
			start := noon.Add(after + tc.step)
			at(start, after)
			if got := c.Trust(); got != tc.want {
				t.Errorf("before the next answer: %d, want %d", got, tc.want)
			}
			for range 5 {
				if got := sample(t, c, s); got != tc.want {
					t.Errorf("after the step: %d, want %d", got, tc.want)
				}
			}
			at(start.Add(5*time.Minute-1), after+5*time.Minute-1)
			if got := sample(t, c, s); got != tc.want {
				t.Errorf("5 minutes later: %d, want %d", got, tc.want)
			}
			at(start.Add(5*time.Minute), after+5*time.Minute)
			for range 3 {
				sample(t, c, s)
			}
			if got := c.Trust(); got != rails.Trusted {
				t.Errorf("after 5 minutes and three answers: %d, want %d", got, rails.Trusted)
			}
		})
	}
}
