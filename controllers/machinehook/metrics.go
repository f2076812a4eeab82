// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

var deadlinesMissed = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "fivespot_deadlines_missed_total",
	Help: "Machines that left after a deadline had passed for which they waited, each counted once, by namespace and name of their Cluster, and the reason of ReadyToLeave. The series of a Cluster go with it.",
}, []string{"namespace", "cluster", "reason"})

// count updates fivespot_deadlines_missed_total when a Machine stops waiting. For a reason that holds the
// Machine it adds 0, because a Cluster without ScheduledMachines has no series yet. The first miss is then an
// increase.
func (s *scope) count(o outcome) {
	add := func(reason string, n float64) {
		deadlinesMissed.WithLabelValues(s.machine.Namespace, s.machine.Spec.ClusterName, reason).Add(n)
	}
	if o.holds && o.reason != "" {
		add(o.reason, 0)
	}
	for reason := range o.missed {
		add(reason, 1)
	}
}

// startClusterSeries sets the counters of a Cluster to zero.
func startClusterSeries(cluster client.ObjectKey) {
	for reason := range v1alpha1.WaitAdvice() {
		deadlinesMissed.WithLabelValues(cluster.Namespace, cluster.Name, reason)
	}
}

// removeClusterSeries removes the counters of a deleted Cluster.
func removeClusterSeries(cluster client.ObjectKey) {
	deadlinesMissed.DeletePartialMatch(prometheus.Labels{"namespace": cluster.Namespace, "cluster": cluster.Name})
}
