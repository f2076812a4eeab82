// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Collector is what shows the planner's gauges.
func (r *Reconciler) Collector() prometheus.Collector { return collector{r} }

// ResetMetrics has every counter begin at zero.
func ResetMetrics() {
	departures.Reset()
	capped.Reset()
}

// Departures counts departures.
func Departures(cluster, lane, forced string) float64 {
	return testutil.ToFloat64(departures.WithLabelValues(cluster, lane, forced))
}

// Capped counts machines that were deferred.
func Capped(cluster, lane string) float64 {
	return testutil.ToFloat64(capped.WithLabelValues(cluster, lane))
}
