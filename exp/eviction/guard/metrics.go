// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
)

var (
	verdicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_eviction_verdicts_total",
		Help: "Evictions that this replica reviewed, including dry runs, by verdict. Error: no decision was possible. Busy: refused with 429 because too many reviews were running.",
	}, []string{"verdict"})
	durations = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fivespot_eviction_duration_seconds",
		Help:    "How long the API server waited for the verdict on an eviction.",
		Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	})
	ended = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_reschedule_requests_ended_total",
		Help: "RescheduleRequests that have come to their end, by outcome: the pod was moved in time, moved after its deadline was over, or the request was withdrawn. Counted by the leader only.",
	}, []string{"outcome"})
	requests = prometheus.NewDesc("fivespot_reschedule_requests",
		"RescheduleRequests by state: open, overdue, and withdrawn; one whose pod is gone is kept for a while, and is open still. Reported by the leader only.",
		[]string{"state"}, nil)
	build = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fivespot_eviction_guard_build_info",
		Help: "1, labelled with the version of the eviction guard and the Go version that it was built with.",
	}, []string{"version", "goversion"})
)

// Verdicts of evictions without a decision.
const (
	undecided = "Error"
	busy      = "Busy"
)

// Outcomes of a RescheduleRequest.
const (
	moved     = "moved"
	overdue   = "overdue"
	withdrawn = "withdrawn"
)

// register registers the metrics. It initializes counters to zero where an alert on an increase must see the first
// event.
func register(registry prometheus.Registerer, version string, c collector) error {
	build.WithLabelValues(version, runtime.Version()).Set(1)
	verdicts.WithLabelValues(undecided)
	verdicts.WithLabelValues(busy)
	for _, outcome := range []string{moved, overdue, withdrawn} {
		ended.WithLabelValues(outcome)
	}
	var errs []error
	for _, m := range []prometheus.Collector{verdicts, durations, ended, build, c} {
		errs = append(errs, registry.Register(m))
	}
	return errors.Join(errs...)
}

// collector counts requests in the cache on each scrape, so that the gauge cannot drift.
type collector struct {
	reader client.Reader
	// leads reports whether this replica holds the lease.
	leads func() bool
	// reporter holds which requests are overdue.
	reporter *reporter
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) { ch <- requests }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	if !c.leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list := &evictionv1.RescheduleRequestList{}
	if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(requests, err)
		return
	}
	counts := map[string]int{"open": 0, overdue: 0, withdrawn: 0}
	for i := range list.Items {
		switch r := &list.Items[i]; {
		case r.Spec.Intent == evictionv1.IntentWithdrawn:
			counts[withdrawn]++
		case c.reporter.recorded(r.Spec.Pod.UID, evictionv1.RescheduleOverdueEvent) && !c.reporter.recorded(r.Spec.Pod.UID, evictionv1.RescheduledEvent):
			counts[overdue]++
		default:
			counts["open"]++
		}
	}
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(requests, prometheus.GaugeValue, float64(n), state)
	}
}
