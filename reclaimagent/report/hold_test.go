// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

func TestHoldReporter(t *testing.T) {
	const get, patch = http.MethodGet, http.MethodPatch
	held, away := reclaim.HoldState{Pods: 3, CPU: 9 * time.Millisecond}.Text(), reclaim.HoldState{Unavailable: "cgroup v1"}.Text()
	requested := func() map[string]any { return map[string]any{reclaim.RequestedAnnotation: "true"} }
	cases := map[string]struct {
		reason   string
		server   *server
		before   func(*server, *http.Request) int
		story    func(s *server, h *report.HoldReporter)
		want     any
		requests []string
	}{
		"NothingSet": {
			reason: "Without a hold the Node is left alone.",
			server: newServer(machineID, requested()),
			story:  func(*server, *report.HoldReporter) { time.Sleep(time.Hour) },
		},
		"Held": {
			reason: "It is one write beside the request.",
			server: newServer(machineID, requested()),
			story:  func(_ *server, h *report.HoldReporter) { h.Set(held); time.Sleep(time.Hour) },
			want:   held, requests: []string{get, patch},
		},
		"Repeated": {
			reason: "A value that the Node has is not written again.",
			server: newServer(machineID, requested()),
			story: func(_ *server, h *report.HoldReporter) {
				h.Set(held)
				synctest.Wait()
				h.Set(held)
				time.Sleep(time.Minute)
			},
			want: held, requests: []string{get, patch, get},
		},
		"Released": {
			reason: "The value ends with the hold.",
			server: newServer(machineID, requested()),
			story: func(_ *server, h *report.HoldReporter) {
				h.Set(held)
				synctest.Wait()
				h.Set("")
				time.Sleep(time.Minute)
			},
			requests: []string{get, patch, get, patch},
		},
		"Unavailable": {
			reason: "The owner reads before the emergency that there will be no hold.",
			server: newServer(machineID, nil),
			story:  func(_ *server, h *report.HoldReporter) { h.Set(away); time.Sleep(time.Hour) },
			want:   away, requests: []string{get, patch},
		},
		"AnotherMachine": {
			reason:   "Another machine is not written.",
			server:   newServer("ffffffffffffffffffffffffffffffff", requested()),
			story:    func(_ *server, h *report.HoldReporter) { h.Set(held); time.Sleep(time.Millisecond) },
			requests: []string{get},
		},
		"Rejected": {
			reason: "A rejected annotation is not written again at once.",
			server: newServer(machineID, nil),
			before: func(_ *server, r *http.Request) int {
				if r.Method == patch {
					return http.StatusUnprocessableEntity
				}
				return 0
			},
			story: func(_ *server, h *report.HoldReporter) {
				for range 24 {
					h.Set(away)
					time.Sleep(5 * time.Second)
				}
			},
			requests: []string{get, patch},
		},
		"ServerAway": {
			reason: "It is written when the server answers again.",
			server: newServer(machineID, requested()),
			before: failing(-1, 0, http.StatusConflict),
			story:  func(_ *server, h *report.HoldReporter) { h.Set(held); time.Sleep(time.Minute) },
			want:   held, requests: []string{get, get, patch, get, patch},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tc.server
				s.before = tc.before
				h := report.NewHoldReporter(report.Options{
					Client: direct{s}, Node: "ws", MachineID: machineID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { h.Run(ctx); close(ended) }()
				tc.story(s, h)
				synctest.Wait()
				if got := s.annotations()[reclaim.HoldAnnotation]; got != tc.want {
					t.Errorf("%s\nthe annotation is %v, want %v", tc.reason, got, tc.want)
				}
				if diff := cmp.Diff(tc.requests, s.requests); diff != "" {
					t.Errorf("%s\nrequests: -want, +got:\n%s", tc.reason, diff)
				}
				cancel()
				<-ended
			})
		})
	}
}

// TestAMissingNodeReleasesNoPods has a Node that was deleted: the hold stands until the provider resets the host.
func TestAMissingNodeReleasesNoPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(machineID, map[string]any{})
		s.before = func(*server, *http.Request) int { return http.StatusNotFound }
		unblocked := false
		r := report.New(report.Options{
			Client: direct{s}, Node: "ws", MachineID: machineID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Holder: &observer{enabled: true, unblocked: func(bool) { unblocked = true }},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := r.AwaitRequested(ctx); err == nil || unblocked {
			t.Errorf("AwaitRequested() = %v, the pods were released: %t", err, unblocked)
		}
	})
}

// TestPodsStayFrozenForARefusal has an API server that refuses the reads: no pod can change that.
func TestPodsStayFrozenForARefusal(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusTooManyRequests} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(machineID, map[string]any{})
			s.before = func(*server, *http.Request) int { return code }
			r := report.New(report.Options{
				Client: direct{s}, Node: "ws", MachineID: machineID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				Holder: &observer{enabled: true, unblocked: func(bool) { t.Errorf("%d: the pods run", code) }},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := r.AwaitCleared(ctx); err == nil {
				t.Errorf("%d: the request counts as cleared", code)
			}
		})
	}
}

// TestPodsRunForSomeReads has an API server that is reached only through a pod which the agent has frozen: a tunnel or
// a proxy in a DaemonSet. Deliver gets through, because the pods run for some attempts. The reads that end the hold
// must get through as well: otherwise the pods stay frozen after the request has been cleared.
func TestPodsRunForSomeReads(t *testing.T) {
	cases := map[string]func(r *report.Reporter, ctx context.Context) error{
		"AwaitCleared":   (*report.Reporter).AwaitCleared,
		"AwaitRequested": (*report.Reporter).AwaitRequested,
		"FirstRead": func(r *report.Reporter, ctx context.Context) error { // as the loop does it
			for {
				if _, err := r.Requested(ctx); err == nil || ctx.Err() != nil {
					return err
				}
				time.Sleep(10 * time.Second)
			}
		},
	}
	for name, read := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				frozen := true
				s := newServer(machineID, map[string]any{})
				if name == "AwaitRequested" {
					s.annotate("5spot.finos.org/reclaim-requested", "true")
				}
				s.before = func(*server, *http.Request) int {
					if frozen {
						return http.StatusBadGateway
					}
					return 0
				}
				r := report.New(report.Options{
					Client: direct{s}, Node: "ws", MachineID: machineID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
					Holder: &observer{enabled: true, unblocked: func(on bool) { frozen = !on }},
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := read(r, ctx); err != nil {
					t.Errorf("after an hour: %v", err)
				}
			})
		})
	}
}
