// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

var at = time.Date(2026, 4, 20, 23, 45, 0, 0, time.FixedZone("CEST", 7200))

// request returns the annotations of a Node with the annotation kept after a report.
func request(kept ...string) map[string]any {
	want := map[string]any{
		reclaim.RequestedAnnotation:   "true",
		reclaim.ReasonAnnotation:      "process-match: java",
		reclaim.RequestedAtAnnotation: "2026-04-20T21:45:00Z",
	}
	for _, key := range kept {
		want[key] = "kept"
	}
	return want
}

func TestReport(t *testing.T) {
	const patch, get = "PATCH /api/v1/nodes/ws?fieldManager=5spot-reclaim-agent", "GET /api/v1/nodes/ws"
	kept := func() map[string]any { return map[string]any{"kept": "kept"} }
	cases := map[string]struct {
		reason   string
		server   *server
		tweak    func(s *server)
		host     string
		want     map[string]any
		err      error
		requests []string
	}{
		"OneRequest": {
			reason: "Check and write are one request.",
			server: newServer(machineID, kept()), host: machineID,
			want: request("kept"), requests: []string{patch},
		},
		"NoAnnotations": {
			reason: "Then the map itself is added, guarded by the version.",
			server: newServer(machineID, nil), host: machineID,
			want: request(), requests: []string{patch, get, patch},
		},
		"AnotherMachine": {
			reason: "A mismatch writes nothing.",
			server: newServer("ffffffffffffffffffffffffffffffff", kept()), host: machineID,
			want: kept(), err: report.ErrHostIdentity, requests: []string{patch, get},
		},
		"NodeWithoutIdentity": {
			reason: "An empty identity proves nothing.",
			server: newServer("", kept()), host: machineID,
			want: kept(), err: report.ErrHostIdentity, requests: []string{patch, get},
		},
		"NodeWithWhiteSpace": {
			reason: "Identities are compared without white space.",
			server: newServer(machineID+"\n", kept()), host: machineID,
			want: request("kept"), requests: []string{patch, get, patch},
		},
		"Skipped": {
			reason: "The check can be skipped.",
			server: newServer("anything", kept()), host: "",
			want: request("kept"), requests: []string{patch},
		},
		"SkippedWithoutAnnotations": {
			reason: "Without the comparison, the test of the version stays.",
			server: newServer("anything", nil), host: "",
			want: request(), requests: []string{patch, get, patch},
		},
		"NoJSONPatch": {
			reason: "A server that refuses JSON Patch gets a merge patch.",
			server: newServer(machineID, kept()), host: machineID,
			tweak: func(s *server) { s.noJSONPatch = true },
			want:  request("kept"), requests: []string{patch, get, patch},
		},
		"NoJSONPatchNoAnnotations": {
			reason: "A merge makes the map.",
			server: newServer(machineID, nil), host: machineID,
			tweak: func(s *server) { s.noJSONPatch = true },
			want:  request(), requests: []string{patch, get, patch},
		},
		"NoJSONPatchStanding": {
			reason: "An existing request is not changed.",
			server: newServer(machineID, map[string]any{reclaim.RequestedAnnotation: "true"}), host: machineID,
			tweak: func(s *server) { s.noJSONPatch = true },
			want:  map[string]any{reclaim.RequestedAnnotation: "true"}, requests: []string{patch, get},
		},
		"NoJSONPatchAnotherMachine": {
			reason: "The identity counts there too.",
			server: newServer("other", kept()), host: machineID,
			tweak: func(s *server) { s.noJSONPatch = true },
			want:  kept(), err: report.ErrHostIdentity, requests: []string{patch, get},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.tweak != nil {
				tc.tweak(tc.server)
			}
			err := reporter(t, tc.server, tc.host).Report(t.Context(), "process-match: java", at)
			if !errors.Is(err, tc.err) {
				t.Errorf("%s\nReport() = %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, tc.server.annotations()); diff != "" {
				t.Errorf("%s\nannotations: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.requests, tc.server.requests); diff != "" {
				t.Errorf("%s\nrequests: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConcurrentWriteIsKept(t *testing.T) {
	cases := map[string]struct {
		reason      string
		noJSONPatch bool
	}{
		"JSONPatch":  {"Another writer adds the first annotation.", false},
		"MergePatch": {"The version guards a merge.", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(machineID, nil)
			s.noJSONPatch = tc.noJSONPatch
			patches := 0
			s.before = func(s *server, r *http.Request) int {
				if r.Method == http.MethodPatch {
					if patches++; patches == 2 {
						s.annotate("kept", "kept")
					}
				}
				return 0
			}
			if err := reporter(t, s, machineID).Deliver(t.Context(), "process-match: java", at); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(request("kept"), s.annotations()); diff != "" {
				t.Errorf("%s\nannotations: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNodeIsReplacedDuringTheReport: the Node becomes another machine's between the read and the write.
func TestNodeIsReplacedDuringTheReport(t *testing.T) {
	cases := map[string]struct {
		reason      string
		noJSONPatch bool
		change      func(s *server)
	}{
		"JSONPatch":     {"The resource version differs.", false, func(s *server) { s.version++ }},
		"MergePatch":    {"The resource version differs.", true, func(s *server) { s.version++ }},
		"AnotherObject": {"The UID differs, where versions are not unique.", true, func(s *server) { s.node["metadata"].(map[string]any)["uid"] = "u2" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(machineID, nil)
			s.noJSONPatch = tc.noJSONPatch
			patches := 0
			s.before = func(s *server, r *http.Request) int {
				if r.Method == http.MethodPatch {
					if patches++; patches == 2 {
						s.node["status"] = map[string]any{"nodeInfo": map[string]any{"machineID": "other"}}
						tc.change(s)
					}
				}
				return 0
			}
			err := reporter(t, s, machineID).Deliver(t.Context(), "process-match: java", at)
			if !errors.Is(err, report.ErrHostIdentity) || s.annotations() != nil {
				t.Errorf("%s\nDeliver() = %v with annotations %v, want %v and none", tc.reason, err, s.annotations(), report.ErrHostIdentity)
			}
		})
	}
}

func TestDeliverRetries(t *testing.T) {
	for name, code := range map[string]int{
		"ServerDown": 503, "TooManyRequests": 429, "Forbidden": 403, "NodeNotYetThere": 404, "Unauthorized": 401, "Broken": 500,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(machineID, map[string]any{"kept": "kept"})
			left := 3
			s.before = func(*server, *http.Request) int {
				if left--; left >= 0 {
					return code
				}
				return 0
			}
			if err := reporter(t, s, machineID).Deliver(t.Context(), "process-match: java", at); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(request("kept"), s.annotations()); diff != "" {
				t.Errorf("The match is kept, with the time at which it was found.\n-want, +got:\n%s", diff)
			}
		})
	}
}

func TestRequested(t *testing.T) {
	cases := map[string]struct {
		reason      string
		annotations map[string]any
		id          string
		want        bool
		err         error
	}{
		"Standing": {"An existing request is found.", map[string]any{reclaim.RequestedAnnotation: "true"}, machineID, true, nil},
		"Other":    {"Only the literal counts.", map[string]any{reclaim.RequestedAnnotation: "True"}, machineID, false, nil},
		"None":     {"The Node has no request.", nil, machineID, false, nil},
		"Mismatch": {"The error is returned at once, not with the first report.", map[string]any{reclaim.RequestedAnnotation: "true"}, "other", true, report.ErrHostIdentity},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := reporter(t, newServer(tc.id, tc.annotations), machineID).Requested(t.Context())
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s\nRequested() = %v, %v, want %v, %v", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}

func TestHostIdentityVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/host_identity.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Host  *string
		Node  string
		Skip  bool
		Patch bool
		Fails string `json:"fails_at"`
	}
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		path := filepath.Join(t.TempDir(), "machine-id")
		if v.Host != nil {
			if err := os.WriteFile(path, []byte(*v.Host), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		host := ""
		if !v.Skip {
			if host, err = report.ReadMachineID(path); (err != nil) != (v.Fails == "start") {
				t.Errorf("%+v: ReadMachineID() = %v", v, err)
			}
			if err != nil {
				continue
			}
		}
		s := newServer(v.Node, map[string]any{})
		err := reporter(t, s, host).Report(t.Context(), "process-match: java", at)
		if (err == nil) != v.Patch || (len(s.annotations()) > 0) != v.Patch {
			t.Errorf("%+v: Report() = %v, annotations %v", v, err, s.annotations())
		}
	}
}

// scripted returns the responses of a list, and then repeats the last. It works in synctest's time, unlike a real
// connection.
type scripted struct {
	answers     []func(into any) error
	requests    []kubeapi.Request
	multiplexed bool
}

func (s *scripted) Do(_ context.Context, r kubeapi.Request, into any) error {
	s.requests = append(s.requests, r)
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return answer(into)
}

func (s *scripted) Multiplexed() bool { return s.multiplexed }

func node(requested string) func(into any) error {
	return func(into any) error {
		return json.Unmarshal([]byte(`{"metadata":{"annotations":{"`+reclaim.RequestedAnnotation+`":"`+requested+`"}}}`), into)
	}
}

func status(code int) func(any) error {
	return func(any) error { return &kubeapi.StatusError{Code: code} }
}

// tainted is a Node that the controller has tainted.
func tainted(id string) func(into any) error {
	return func(into any) error {
		return json.Unmarshal([]byte(`{"spec":{"taints":[{"key":"`+reclaim.NodeTaint+`","effect":"NoExecute"}]},
			"status":{"nodeInfo":{"machineID":"`+id+`"}}}`), into)
	}
}

// TestTaintsAreReadOnlyForAHold checks that the agent reads only the metadata of its Node if no hold needs the taints.
func TestTaintsAreReadOnlyForAHold(t *testing.T) {
	for taints, want := range map[bool]string{false: kubeapi.MetadataOnly, true: ""} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{answers: []func(any) error{node("true"), node("")}}
			err := report.New(report.Options{
				Client: s, Node: "ws", Log: slog.New(slog.DiscardHandler), Now: time.Now,
				Holder: &observer{enabled: taints},
			}).AwaitCleared(t.Context())
			if err != nil || len(s.requests) != 2 || s.requests[0].Accept != want || s.requests[1].Accept != want {
				t.Errorf("taints %t: AwaitCleared() = %v after %+v", taints, err, s.requests)
			}
		})
	}
}

func TestAwaitCleared(t *testing.T) {
	cases := map[string]struct {
		reason   string
		answers  []func(any) error
		requests int
	}{
		"Cleared":    {"The controller clears the request last.", []func(any) error{node("true"), node("true"), node("")}, 3},
		"NodeGone":   {"A Node that does not exist has no request.", []func(any) error{node("true"), status(404)}, 2},
		"ServerAway": {"A failed read does not end the wait.", []func(any) error{status(503), status(403), node("false")}, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: tc.answers}
				start := time.Now()
				if err := fake(t, s).AwaitCleared(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(s.requests) != tc.requests || s.requests[0].Accept != kubeapi.MetadataOnly {
					t.Errorf("%s\n%d requests, want %d", tc.reason, len(s.requests), tc.requests)
				}
				if took := time.Since(start); took > time.Duration(tc.requests)*8*time.Second {
					t.Errorf("took %v for %d responses", took, tc.requests)
				}
			})
		})
	}
}

// TestObservedNodes checks what the reporter passes on.
func TestObservedNodes(t *testing.T) {
	held := func(into any) error {
		return json.Unmarshal([]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""},"annotations":{
			"5spot.finos.org/reclaim-requested":"true","5spot.finos.org/reclaim-hold":"x"}}}`), into)
	}
	named := func(into any) error {
		return json.Unmarshal([]byte(`{"metadata":{"annotations":{"5spot.finos.org/reclaim-requested":"true"}},
			"status":{"nodeInfo":{"machineID":"`+machineID+`"}}}`), into)
	}
	foreign := func(id string) string {
		return fmt.Sprintf("node is not this machine: Node ws has machine id %q, this machine has %q", id, machineID)
	}
	cases := map[string]struct {
		reason  string
		answers []func(any) error
		read    func(r *report.Reporter, ctx context.Context) error
		want    []hold.Node
	}{
		"Requested": {
			"The first read counts.",
			[]func(any) error{held},
			func(r *report.Reporter, ctx context.Context) error { _, err := r.Requested(ctx); return err },
			[]hold.Node{{Requested: true, ControlPlane: true, Report: "x"}},
		},
		"AnotherMachine": {
			"Another machine is not held.",
			[]func(any) error{tainted("f")},
			func(r *report.Reporter, ctx context.Context) error {
				if _, err := r.Requested(ctx); !errors.Is(err, report.ErrHostIdentity) {
					return fmt.Errorf("Requested() = %w", err)
				}
				return nil
			},
			[]hold.Node{{Requested: true, Foreign: foreign("f")}},
		},
		"AwaitCleared": {
			"A missing Node and a failed read are not passed on.",
			[]func(any) error{node("true"), status(503), status(404)},
			(*report.Reporter).AwaitCleared,
			[]hold.Node{{Requested: true}},
		},
		"Cleared": {
			"The end of a request is passed on.",
			[]func(any) error{node("true"), node("")},
			(*report.Reporter).AwaitCleared,
			[]hold.Node{{Requested: true}, {}},
		},
		"AwaitRequested": {
			"The end of a request is passed on here, too: the Node may have been gone.",
			[]func(any) error{node(""), status(404), status(503), held},
			(*report.Reporter).AwaitRequested,
			[]hold.Node{{}, {Requested: true, ControlPlane: true, Report: "x"}},
		},
		"AnotherMachineRequested": {
			"The request of another machine with the same name is not this machine's.",
			[]func(any) error{node("true"), named},
			(*report.Reporter).AwaitRequested,
			[]hold.Node{{Requested: true, Foreign: foreign("")}, {Requested: true}},
		},
		"Tainted": {
			"A taint of the controller counts for the hold. It is no request of the Node.",
			[]func(any) error{tainted(machineID)},
			func(r *report.Reporter, ctx context.Context) error {
				if requested, err := r.Requested(ctx); requested || err != nil {
					return fmt.Errorf("Requested() = %t, %w", requested, err)
				}
				return nil
			},
			[]hold.Node{{Requested: true}},
		},
		"TaintedLater": {
			"So it does later.",
			[]func(any) error{tainted(machineID), tainted(machineID), named},
			(*report.Reporter).AwaitRequested,
			[]hold.Node{{Requested: true}, {Requested: true}, {Requested: true}},
		},
		"TaintOfAnotherMachine": {
			"The Node of another machine with the same name is being returned.",
			[]func(any) error{tainted("f"), named},
			(*report.Reporter).AwaitRequested,
			[]hold.Node{{Requested: true, Foreign: foreign("f")}, {Requested: true}},
		},
		"ClearedTainted": {
			"The taint stays after the request.",
			[]func(any) error{named, tainted(machineID)},
			(*report.Reporter).AwaitCleared,
			[]hold.Node{{Requested: true}, {Requested: true}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &observer{enabled: true}
				id := ""
				if strings.Contains(name, "AnotherMachine") || strings.Contains(name, "Tainted") {
					id = machineID
				}
				r := report.New(report.Options{
					Client: &scripted{answers: tc.answers}, Node: "ws", MachineID: id, Log: slog.New(slog.DiscardHandler), Now: time.Now,
					Holder: seen,
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := tc.read(r, ctx); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, seen.nodes); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestObserveGetsTheStartOfTheRead checks that a match during a slow read is later than that read.
func TestObserveGetsTheStartOfTheRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, start := &observer{}, time.Now()
		slow := func(any) error { time.Sleep(time.Second); return nil }
		r := report.New(report.Options{
			Client: &scripted{answers: []func(any) error{slow}}, Node: "ws", Log: slog.New(slog.DiscardHandler), Now: time.Now, Holder: seen,
		})
		if _, err := r.Requested(t.Context()); err != nil || !seen.started.Equal(start) {
			t.Errorf("the read started at %v, want %v; %v", seen.started, start, err)
		}
	})
}

func TestRetryDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []func(any) error{status(503)}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := fake(t, s).Deliver(ctx, "x", at); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Deliver() = %v", err)
		}
		if n := len(s.requests); n < 4 {
			t.Errorf("%d tries in the first second, want three failures to be outlasted", n)
		}
		s.requests = nil
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_ = fake(t, s).Deliver(ctx, "x", at)
		if n := len(s.requests); n < 240 || n > 800 {
			t.Errorf("%d tries in an hour, want one every 5 to 15 seconds", n)
		}
	})
}

// TestPodsRunForSomeAttempts has an API server that does not answer: the request may pass through a frozen pod.
func TestPodsRunForSomeAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []func(any) error{status(503)}}
		var calls []bool
		r := report.New(report.Options{
			Client: s, Node: "ws", Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Holder: &observer{unblocked: func(on bool) {
				if on && len(s.requests) == 0 {
					t.Error("the pods run for the first attempt")
				}
				calls = append(calls, on)
			}},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_ = r.Deliver(ctx, "x", at)
		for i, on := range calls {
			if on != (i%2 == 0) {
				t.Fatalf("call %d is %t", i, on)
			}
		}
		if n := len(calls) / 2; n < 8 || n > 10 {
			t.Errorf("the pods run for %d attempts in 10 minutes, want one in each", n)
		}
	})
}

func TestKeepWarm(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		multiplexed bool
		least, most int
	}{
		"HTTP1": {"A second connection would idle out.", false, 50, 160},
		"HTTP2": {"The watch keeps the only connection open.", true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: []func(any) error{node("")}, multiplexed: tc.multiplexed}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				fake(t, s).KeepWarm(ctx)
				if n := len(s.requests); n < tc.least || n > tc.most {
					t.Errorf("%s\n%d requests in an hour, want %d to %d", tc.reason, n, tc.least, tc.most)
				}
			})
		})
	}
}
