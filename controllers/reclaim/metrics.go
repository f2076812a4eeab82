// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
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
		Help: "Owners' requests that were accepted, by namespace and name of their Cluster. The series of a deleted Cluster are removed.",
	}, []string{"namespace", "cluster"})
	rapidReReclaims = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_rapid_re_reclaims_total",
		Help: "Owners' requests that were at least the third for their machine within ten minutes.",
	})
	screenedRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_reclaim_requests_screened_total",
		Help: "Requests on Nodes that were not served: stale, foreign_host or control_plane.",
	}, []string{"reason"})
	latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fivespot_reclaim_latency_seconds",
		Help: "Time from an owner's request until it was seen, until the Machine was deleted and until it was gone, by namespace and name of the Cluster. The time of a request is in whole seconds, by the clock of its writer. The series of a deleted Cluster are removed.",
		Buckets: []float64{
			1, 2, 3, 5, 10, 15, 30, 60, 120, 300,
		},
	}, []string{"namespace", "cluster", "stage"})
)

func registerMetrics() error {
	for _, c := range []prometheus.Collector{reclaims, rapidReReclaims, screenedRequests, latency} {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	for reason := range screenedNotes {
		screenedRequests.WithLabelValues(reason) // The series starts at zero, so that the first request is an increase.
	}
	return nil
}

// startClusterSeries starts the counters of a Cluster at zero.
func startClusterSeries(cluster client.ObjectKey) {
	reclaims.WithLabelValues(cluster.Namespace, cluster.Name)
	for _, stage := range []string{stageSeen, stageDeleted, stageGone} {
		latency.WithLabelValues(cluster.Namespace, cluster.Name, stage)
	}
}

// removeClusterSeries removes the series of a deleted Cluster.
func removeClusterSeries(cluster client.ObjectKey) {
	labels := prometheus.Labels{"namespace": cluster.Namespace, "cluster": cluster.Name}
	reclaims.DeletePartialMatch(labels)
	latency.DeletePartialMatch(labels)
}

// observeStage measures the time from since to until, unless since is zero. The clocks of two hosts may differ: a
// negative time counts as zero. Without a Cluster it records nothing.
func (s *scope) observeStage(stage string, since, until time.Time) {
	if !since.IsZero() && s.cluster != nil {
		latency.WithLabelValues(s.cluster.Namespace, s.cluster.Name, stage).Observe(max(until.Sub(since).Seconds(), 0))
	}
}

// since returns when the current request was made, else when it was counted; zero if both are unknown.
func (s *scope) since() time.Time {
	request := s.request()
	at, err := time.Parse(time.RFC3339, request.RequestedAt)
	if err != nil {
		at, _ = time.Parse(time.RFC3339, request.SeenAt)
	}
	return at
}
