// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var deadlinesMissed = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "fivespot_deadlines_missed_total",
	Help: "Machines that left although the deadline had passed of somebody they waited for, each counted once, by namespace and name of their Cluster, and the reason of ReadyToLeave: WaitingForExtension, WaitingForLoadBalancers, WaitingForOperators or StoppingPods. Absent until one waits; the series of a Cluster goes with it.",
}, []string{"namespace", "cluster", "reason"})

// count counts a Machine that goes although deadlines were missed. What it waits for is counted
// from zero, so that the first is an increase.
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

// forgetCluster forgets what was counted for a Cluster that is gone.
func forgetCluster(cluster client.ObjectKey) {
	deadlinesMissed.DeletePartialMatch(prometheus.Labels{"namespace": cluster.Namespace, "cluster": cluster.Name})
}
