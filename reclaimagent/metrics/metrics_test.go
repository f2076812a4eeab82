// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

func TestServe(t *testing.T) {
	var s metrics.Set
	s.Execs.Add(3)
	s.HoldFailures.Of(metrics.HoldFreezing).Add(1)
	s.MatchLatency.Store(int64(60 * time.Microsecond))
	s.SetDetector("netlink")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	get := func(path string) string {
		t.Helper()
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	if got := get("/healthz"); got != "ok\n" {
		t.Errorf("/healthz returns %q", got)
	}
	if got := get("/readyz"); got == "ok\n" {
		t.Error("/readyz returns ok before the state is reported")
	}
	s.StateReported.Store(true)
	if got := get("/readyz"); got != "ok\n" {
		t.Errorf("/readyz returns %q", got)
	}
	got := get("/metrics")
	for _, want := range []string{
		"fivespot_agent_execs_total 3\n", "fivespot_agent_overruns_total 0\n", "fivespot_agent_match_latency_seconds 6e-05\n",
		"fivespot_agent_detector{detector=\"netlink\"} 1\n", "fivespot_agent_hold_failures_total{reason=\"freeze\"} 1\n", "fivespot_agent_detector{detector=\"poll\"} 0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("/metrics lacks %q:\n%s", want, got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve() = %v after its context is done", err)
	}
}

// TestFormat parses the output as strictly as Prometheus: every sample follows the help and the type of its metric.
func TestFormat(t *testing.T) {
	var b strings.Builder
	if err := new(metrics.Set).Write(&b); err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile(`^(# HELP (fivespot_agent_[a-z_]+) [A-Z][^\n]*\.\n# TYPE [a-z_]+ (counter|gauge)\n(fivespot_agent_[a-z_]+(\{(detector|reason)="[a-z]+"\})? [0-9.e+-]+\n)+)+$`)
	if !block.MatchString(b.String()) {
		t.Errorf("not Prometheus text:\n%s", b.String())
	}
	for m := range strings.SplitSeq(strings.TrimSpace(b.String()), "\n") {
		name, kind, typed := strings.Cut(strings.TrimPrefix(m, "# TYPE "), " ")
		if typed && strings.HasPrefix(m, "# TYPE ") && (kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
}
