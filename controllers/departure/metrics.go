// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

var (
	departures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_departures_total",
		Help: "Voluntary departures that the planner admitted, each counted once, by namespace and name of their Cluster, and lane. The series of a Cluster goes with it.",
	}, []string{"namespace", "cluster", "lane"})
	capped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_departures_capped_total",
		Help: "Machines whose departure the cap deferred, each counted once, by namespace and name of their Cluster, and lane. The series of a Cluster goes with it.",
	}, []string{"namespace", "cluster", "lane"})
	deadlinesMissed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fivespot_deadlines_missed_total",
		Help: "Machines for which a deadline of a step or an extension passed, or whose Node did not answer, each counted once for a reason and a leader, by namespace and name of their Cluster, and the reason of ReadyForDeletion. The series of a Cluster go with it.",
	}, []string{"namespace", "cluster", "reason"})
	orphanMachines = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fivespot_orphan_machines",
		Help: "Machines that were made for a ScheduledMachine that does not exist any more, and that are not being deleted, by namespace and Cluster. Absent for a Cluster without Machines of 5-Spot. Reported by the leader only.",
	}, []string{"namespace", "cluster"})
	oldestDeferred = prometheus.NewDesc("fivespot_departure_oldest_deferred_seconds",
		"Age of the oldest deferred departure, by namespace and Cluster. Absent if none is deferred.",
		[]string{"namespace", "cluster"}, nil)
	departuresHeld = prometheus.NewDesc("fivespot_departures_held",
		"Machines that would leave, and that the annotation 5spot.finos.org/hold-departures of their Cluster holds. By namespace and Cluster.",
		[]string{"namespace", "cluster"}, nil)
	wipeQuarantined = prometheus.NewDesc("fivespot_wipe_quarantined",
		"Consecutive checks that saw nearly all machines about to leave at once, while they are held; 0 if none is held. By namespace and Cluster.",
		[]string{"namespace", "cluster"}, nil)
)

// registerMetrics registers the metrics of this package.
func (r *Reconciler) registerMetrics() error {
	for _, c := range []prometheus.Collector{departures, capped, deadlinesMissed, orphanMachines, collector{r}} {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// startClusterSeries sets the counters of a Cluster to zero.
func startClusterSeries(cluster client.ObjectKey) {
	for _, lane := range []departurecap.Lane{departurecap.Scheduled, departurecap.Unscheduled} {
		capped.WithLabelValues(cluster.Namespace, cluster.Name, string(lane))
		departures.WithLabelValues(cluster.Namespace, cluster.Name, string(lane))
	}
	for reason := range v1alpha1.WaitAdvice() {
		deadlinesMissed.WithLabelValues(cluster.Namespace, cluster.Name, reason)
	}
}

// removeClusterSeries removes the counters of a deleted Cluster.
func removeClusterSeries(cluster client.ObjectKey) {
	labels := prometheus.Labels{"namespace": cluster.Namespace, "cluster": cluster.Name}
	for _, counter := range []*prometheus.CounterVec{departures, capped, deadlinesMissed} {
		counter.DeletePartialMatch(labels)
	}
}

// A miss is a missed deadline that is counted: once for a Machine and a reason.
type miss struct {
	machine types.UID
	reason  string
}

// count updates fivespot_deadlines_missed_total. For a reason that holds the Machine it adds 0, because a Cluster without
// ScheduledMachines has no series yet. The first miss is then an increase.
func (r *HookReconciler) count(s *scope, o outcome) {
	add := func(reason string, n float64) {
		deadlinesMissed.WithLabelValues(s.machine.Namespace, s.machine.Spec.ClusterName, reason).Add(n)
	}
	if o.holds && o.reason != "" && o.reason != v1alpha1.WaitingForResponseReason {
		add(o.reason, 0)
	}
	for reason := range o.missed {
		if _, counted := r.misses.LoadOrStore(miss{s.machine.UID, reason}, true); !counted {
			add(reason, 1)
		}
	}
}

// shown has the values of a Cluster for the metrics. r.mu guards it.
type shown struct {
	// oldest is when the longest waiting candidate became due, zero if none waits.
	oldest time.Time
	// quarantined counts the checks that saw a wipe and hold machines. The metric exists only if guarded is
	// set.
	quarantined int
	guarded     bool
	// onHold is the number of machines that a person's hold keeps.
	onHold int
}

// collector computes the metrics when they are scraped, because the oldest wait grows with time.
type collector struct{ *Reconciler }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- oldestDeferred
	ch <- wipeQuarantined
	ch <- departuresHeld
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.fleet {
		if !s.oldest.IsZero() {
			ch <- prometheus.MustNewConstMetric(oldestDeferred, prometheus.GaugeValue, max(0, now.Sub(s.oldest).Seconds()), key.Namespace, key.Name)
		}
		ch <- prometheus.MustNewConstMetric(departuresHeld, prometheus.GaugeValue, float64(s.onHold), key.Namespace, key.Name)
		if s.guarded {
			ch <- prometheus.MustNewConstMetric(wipeQuarantined, prometheus.GaugeValue, float64(s.quarantined), key.Namespace, key.Name)
		}
	}
}
