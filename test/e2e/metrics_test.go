// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exposed is a metric in the exposition format.
type exposed struct {
	Type string
	// Labels are the names of the labels of its series, in order.
	Labels []string
}

var (
	typeLine   = regexp.MustCompile(`^# TYPE (fivespot_[a-z_]+) ([a-z]+)$`)
	seriesLine = regexp.MustCompile(`^(fivespot_[a-z_]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? [^ ]+$`)
	labelName  = regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)
)

// exposition parses 5-Spot's metrics; metrics without a series have only a type.
func exposition(text string) map[string]exposed {
	all := map[string]exposed{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := typeLine.FindStringSubmatch(line); m != nil {
			all[m[1]] = exposed{Type: m[2]}
		}
		m := seriesLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f := all[m[1]]
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && !slices.Contains(f.Labels, l[1]) {
				f.Labels = append(f.Labels, l[1])
			}
		}
		slices.Sort(f.Labels)
		all[m[1]] = f
	}
	return all
}

// rare are gauges that a manager with a quiet fleet does not serve: before their first event, or without limits on
// departures.
var rare = []string{
	"fivespot_departure_oldest_deferred_seconds", "fivespot_wipe_quarantined",
	"fivespot_detaching_nodes", "fivespot_load_balancers_unreachable", "fivespot_orphan_machines",
}

// ofCluster are the counters of a Cluster, without the Cluster's labels, and their number of series.
var ofCluster = map[string]int{
	"fivespot_emergency_reclaims_total": 1, "fivespot_reclaim_latency_seconds_count": 3, "fivespot_deadlines_missed_total": 4,
	"fivespot_departures_total": 2, "fivespot_departures_capped_total": 2,
}

// ofGuard are the metrics of the eviction guard, which is another program.
var ofGuard = []string{"fivespot_eviction_verdicts_total", "fivespot_reschedule_requests"}

// served returns the manager's answer at /metrics.
func (l *lab) served() string {
	l.t.Helper()
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://"+shared.Manager.Flag("diagnostics-address")+"/metrics", nil)
	l.must(err)
	response, err := http.DefaultClient.Do(request)
	l.must(err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	l.must(err)
	return string(text)
}

// TestTheCountersOfAClusterStartAtZero has a ScheduledMachine without any event.
func TestTheCountersOfAClusterStartAtZero(t *testing.T) {
	t.Parallel()
	l := newLab(t, "metrics-zero")
	l.running("idle", nil)
	zeros := map[string]int{}
	for line := range strings.Lines(l.served()) {
		name, labels, _ := strings.Cut(line, "{")
		if ofCluster[name] > 0 && strings.Contains(labels, fmt.Sprintf(`cluster=%q`, l.Key.Name)) &&
			strings.Contains(labels, fmt.Sprintf(`namespace=%q`, l.Key.Namespace)) && strings.HasSuffix(labels, "} 0\n") {
			zeros[name]++
		}
	}
	if diff := cmp.Diff(ofCluster, zeros); diff != "" {
		t.Errorf("series at zero: -want, +got:\n%s", diff)
	}
}

// TestMonitoringKnowsTheManagersMetrics compares the samples of the tests of alerts and dashboard with the metrics of a
// manager.
func TestMonitoringKnowsTheManagersMetrics(t *testing.T) {
	t.Parallel()
	l := newLab(t, "metrics")
	asks := l.running("asks", nil)
	l.askBack(l.node(asks), "java")
	l.waitPhase(asks, disabled, "")

	served := exposition(l.served())
	samples, err := os.ReadFile("../monitoring/testdata/healthy.prom")
	l.must(err)
	assumed := exposition(string(samples))
	if len(assumed) == 0 {
		t.Fatal("no samples")
	}
	for _, name := range slices.Sorted(maps.Keys(assumed)) {
		got, ok := served[name]
		if !ok && slices.Contains(slices.Concat(rare, ofGuard), name) {
			continue
		}
		want := assumed[name]
		if len(want.Labels) == 0 && slices.Contains(rare, name) {
			want.Labels = got.Labels // A quiet fleet has no series of it.
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -the samples of test/monitoring, +the manager:\n%s", name, diff)
		}
	}
}
