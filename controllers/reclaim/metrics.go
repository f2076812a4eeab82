// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Stages of fivespot_reclaim_latency_seconds.
const (
	stageSeen    = "seen"
	stageDeleted = "deleted"
	stageGone    = "gone"
)

var (
	reclaims = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_emergency_reclaims_total",
		Help: "Requests of owners that were taken up, by Cluster.",
	}, []string{"cluster"})
	rapidReReclaims = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_rapid_re_reclaims_total",
		Help: "Requests of owners that were at least the third for their machine inside ten minutes.",
	})
	screenedRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_reclaim_requests_screened_total",
		Help: "Requests on Nodes that were not served: stale, foreign_host or control_plane.",
	}, []string{"reason"})
	latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fivespot_reclaim_latency_seconds",
		Help: "Time from an owner's request, by the Node's clock in whole seconds, until it was seen, until the Machine was deleted and until it was gone.",
		Buckets: []float64{
			.05, .1, .25, .5, 1, 2, 5, 10, 30, 60, 300,
		},
	}, []string{"stage"})
)

func registerMetrics() error {
	for _, c := range []prometheus.Collector{reclaims, rapidReReclaims, screenedRequests, latency} {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// observeStage measures from what the Node wrote. A Node whose clock runs ahead
// counts as zero.
func (r *Reconciler) observeStage(record v1alpha1.ReclaimRecord, stage string) {
	at, err := time.Parse(time.RFC3339, record.RequestedAt)
	if err != nil {
		return
	}
	latency.WithLabelValues(stage).Observe(max(r.Clock.Since(at).Seconds(), 0))
}
