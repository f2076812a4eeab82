// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

var (
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_transitions_total",
		Help: "Changes of phase, by the phase left and the phase entered.",
	}, []string{"from", "to"})
	transitionLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fivespot_transition_lag_seconds",
		Help:    "Time from the edge of a window to the first action it asks for.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
	})
	evaluations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_schedule_evaluations_total",
		Help: "Times a schedule was judged.",
	})
	killSwitchActivations = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_kill_switch_activations_total",
		Help: "Times a ScheduledMachine became Terminated.",
	})
	failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fivespot_reconcile_failures_total",
		Help: "Times a step failed and is tried again with back-off.",
	})
	machines = prometheus.NewDesc("fivespot_machines",
		"ScheduledMachines by phase and Cluster.", []string{"phase", "cluster"}, nil)
)

// registerMetrics registers the metrics of this package. machines is counted from
// the cache when it is asked for, so that it cannot drift.
func registerMetrics(reader client.Reader) error {
	for _, c := range []prometheus.Collector{transitions, transitionLag, evaluations, killSwitchActivations, failures, collector{reader}} {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// observeLag measures how late an action is that an edge of the window asked
// for. The edge is the one that was announced.
func observeLag(s *scope, now time.Time) {
	st := s.before.Status
	edge := st.NextActivation
	if st.InSchedule {
		edge = st.NextCleanup
	}
	if edge != nil && !edge.After(now) {
		transitionLag.Observe(now.Sub(edge.Time).Seconds())
	}
}

type collector struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) { ch <- machines }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list := &v1alpha1.ScheduledMachineList{}
	if err := c.reader.List(ctx, list); err != nil {
		ch <- prometheus.NewInvalidMetric(machines, err)
		return
	}
	type key struct{ phase, cluster string }
	counts := map[key]int{}
	for _, sm := range list.Items {
		counts[key{string(sm.Status.Phase), sm.Namespace + "/" + sm.Spec.ClusterName}]++
	}
	for k, n := range counts {
		ch <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, float64(n), k.phase, k.cluster)
	}
}
