// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Collector is what shows the planner's gauges.
func (r *Reconciler) Collector() prometheus.Collector { return collector{r} }

// HoldChanges is holdChanges.
var HoldChanges = holdChanges

// The series of a Cluster.
var (
	StartClusterSeries  = startClusterSeries
	RemoveClusterSeries = removeClusterSeries
)

// Series is how many there are of counters.
func Series() int { return testutil.CollectAndCount(departures) + testutil.CollectAndCount(capped) }

// ResetMetrics has every counter begin at zero.
func ResetMetrics() {
	departures.Reset()
	capped.Reset()
}

// Departures counts departures.
func Departures(cluster client.ObjectKey, lane string) float64 {
	return testutil.ToFloat64(departures.WithLabelValues(cluster.Namespace, cluster.Name, lane))
}

// Capped counts machines that were deferred.
func Capped(cluster client.ObjectKey, lane string) float64 {
	return testutil.ToFloat64(capped.WithLabelValues(cluster.Namespace, cluster.Name, lane))
}
