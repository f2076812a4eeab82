// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

// direct calls a server without a network, so that the test can control time.
type direct struct{ s *server }

func (d direct) Multiplexed() bool { return true }

func (d direct) Do(_ context.Context, r kubeapi.Request, into any) error {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	s.requests = append(s.requests, method)
	s.bodies = append(s.bodies, string(r.Body))
	if s.before != nil {
		switch code := s.before(s, &http.Request{Method: method}); {
		case code < 0:
			return errors.New("connection refused")
		case code > 0:
			return &kubeapi.StatusError{Code: code}
		}
	}
	if method == http.MethodPatch {
		if code, err := s.patch(r.ContentType, r.Body); err != nil {
			return &kubeapi.StatusError{Code: code, Message: err.Error()}
		}
		return nil
	}
	return json.Unmarshal(s.document(), into)
}

var (
	java = reclaim.ConfigFor([]string{"java"})
	idea = reclaim.ConfigFor([]string{"idea"})
)

func stated(detector string, c reclaim.Config) string {
	return reclaim.AgentState{Detector: detector, Config: c.Hash()}.Text()
}

// failing returns codes for the first requests. -1 means no response.
func failing(codes ...int) func(*server, *http.Request) int {
	return func(*server, *http.Request) int {
		if len(codes) == 0 {
			return 0
		}
		code := codes[0]
		codes = codes[1:]
		return code
	}
}

func TestStateReporter(t *testing.T) {
	const get, patch = http.MethodGet, http.MethodPatch
	watching := func(t *report.StateReporter) { t.SetConfig(java); t.SetDetector("netlink", false) }
	cases := map[string]struct {
		reason   string
		server   *server
		before   func(*server, *http.Request) int
		story    func(s *server, t *report.StateReporter)
		want     any
		current  bool
		requests []string
	}{
		"NothingToSay": {
			reason: "Without a detector nothing is written.",
			story:  func(_ *server, t *report.StateReporter) { t.SetConfig(java); time.Sleep(time.Hour) },
		},
		"Watching": {
			reason: "The state is written once.",
			story:  func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(20 * time.Second) },
			want:   stated("netlink", java), current: true, requests: []string{get, patch},
		},
		"SaidBefore": {
			reason: "An agent that starts again does not write the same state.",
			server: newServer(machineID, map[string]any{reclaim.StateAnnotation: stated("netlink", java)}),
			story:  func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(20 * time.Second) },
			want:   stated("netlink", java), current: true, requests: []string{get},
		},
		"OneWrite": {
			reason: "Several changes within a second cause one write.",
			story: func(_ *server, t *report.StateReporter) {
				t.SetIdle(reclaim.Config{})
				watching(t)
				t.SetDetector("", false)
				t.SetDetector("poll", false)
				t.SetDetector("netlink", false)
				t.SetConfig(idea)
				t.SetDetector("netlink", false)
				time.Sleep(20 * time.Second)
			},
			want: stated("netlink", idea), current: true, requests: []string{get, patch},
		},
		"Changed": {
			reason: "The annotation is outdated until the next write.",
			story: func(_ *server, t *report.StateReporter) {
				watching(t)
				time.Sleep(20 * time.Second)
				t.SetConfig(idea)
				t.SetDetector("netlink", false)
				synctest.Wait()
			},
			want: stated("netlink", java), requests: []string{get, patch},
		},
		"FellBack": {
			reason: "Another detector is written.",
			story: func(_ *server, t *report.StateReporter) {
				watching(t)
				time.Sleep(20 * time.Second)
				t.SetDetector("poll", false)
				time.Sleep(20 * time.Second)
			},
			want: stated("poll", java), current: true, requests: []string{get, patch, get, patch},
		},
		"Disarmed": {
			reason: "A Config without patterns is written.",
			story: func(_ *server, t *report.StateReporter) {
				watching(t)
				time.Sleep(20 * time.Second)
				t.SetIdle(reclaim.Config{})
				time.Sleep(20 * time.Second)
			},
			want: stated("none", reclaim.Config{}), current: true, requests: []string{get, patch, get, patch},
		},
		"TakenOff": {
			reason: "A removed annotation is written again.",
			story: func(s *server, t *report.StateReporter) {
				watching(t)
				time.Sleep(20 * time.Second)
				s.mu.Lock()
				s.annotate(reclaim.StateAnnotation, "")
				s.mu.Unlock()
				time.Sleep(8 * time.Minute)
			},
			want: stated("netlink", java), current: true,
		},
		"AnotherMachine": {
			reason: "The annotation of another machine's Node is not written.",
			server: newServer("ffffffffffffffffffffffffffffffff", map[string]any{}),
			story:  func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(3 * time.Second) },
		},
		"Refused": {
			reason: "A rejected write is repeated.",
			before: failing(0, http.StatusForbidden, http.StatusForbidden),
			story:  func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(20 * time.Second) },
			want:   stated("netlink", java), current: true, requests: []string{get, patch, get, get, patch},
		},
		"RefusedForGood": {
			reason: "An agent without the right to write is not ready.",
			before: func(_ *server, r *http.Request) int {
				if r.Method == patch {
					return http.StatusForbidden
				}
				return 0
			},
			story: func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(3 * time.Second) },
		},
		"ServerAwayLater": {
			reason: "Without a response, the annotation counts as unchanged.",
			story: func(s *server, t *report.StateReporter) {
				watching(t)
				time.Sleep(20 * time.Second)
				s.mu.Lock()
				s.before = func(*server, *http.Request) int { return -1 }
				s.requests = nil
				s.mu.Unlock()
				time.Sleep(8 * time.Minute)
			},
			want: stated("netlink", java), current: true,
		},
		"ServerOverloadedLater": {
			reason: "A server that is overloaded or fails says nothing about the annotation.",
			story: func(s *server, t *report.StateReporter) {
				watching(t)
				time.Sleep(20 * time.Second)
				for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
					s.mu.Lock()
					s.before = func(*server, *http.Request) int { return code }
					s.mu.Unlock()
					time.Sleep(8 * time.Minute)
				}
			},
			want: stated("netlink", java), current: true,
		},
		"RequestStands": {
			reason: "Nothing is written while the Node has a request.",
			server: newServer(machineID, map[string]any{reclaim.RequestedAnnotation: "true"}),
			story:  func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(3 * time.Second) },
		},
		"AnotherNode": {
			reason: "A Node with another UID is read before the write is repeated.",
			before: func(s *server, r *http.Request) int {
				if r.Method == patch && len(s.requests) == 2 {
					s.node["metadata"].(map[string]any)["uid"] = "u2"
				}
				return 0
			},
			story: func(_ *server, t *report.StateReporter) { watching(t); time.Sleep(20 * time.Second) },
			want:  stated("netlink", java), current: true, requests: []string{get, patch, get, patch},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tc.server
				if s == nil {
					s = newServer(machineID, map[string]any{"kept": "kept"})
				}
				s.before = tc.before
				var current atomic.Bool
				reporter := report.NewStateReporter(report.Options{
					Client: direct{s}, Node: "ws", MachineID: machineID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				}, current.Store)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { reporter.Run(ctx); close(ended) }()
				tc.story(s, reporter)
				synctest.Wait()
				if got := s.annotations()[reclaim.StateAnnotation]; got != tc.want || current.Load() != tc.current {
					t.Errorf("%s\nthe annotation is %v (current: %t), want %v (%t)", tc.reason, got, current.Load(), tc.want, tc.current)
				}
				if diff := cmp.Diff(tc.requests, s.requests); tc.requests != nil && diff != "" {
					t.Errorf("%s\nrequests: -want, +got:\n%s", tc.reason, diff)
				}
				cancel()
				<-ended
			})
		})
	}
}
