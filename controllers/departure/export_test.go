// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// Collector returns the collector of the planner's gauges.
func (r *Reconciler) Collector() prometheus.Collector { return collector{r} }

// The functions set and remove the series of a Cluster.
var (
	StartClusterSeries  = startClusterSeries
	RemoveClusterSeries = removeClusterSeries
)

// The metrics of the hooks and of the orphans, and the predicates of the controllers.
var (
	DeadlinesMissed = deadlinesMissed
	OrphanMachines  = orphanMachines
	MachineChanges  = machineChanges
	Exists          = exists
)

// Series returns the number of series of the counters.
func Series() int { return testutil.CollectAndCount(departures) + testutil.CollectAndCount(capped) }

// ResetMetrics resets every counter.
func ResetMetrics() {
	departures.Reset()
	capped.Reset()
}

// Departures returns the counter of departures.
func Departures(cluster client.ObjectKey, lane string) float64 {
	return testutil.ToFloat64(departures.WithLabelValues(cluster.Namespace, cluster.Name, lane))
}

// Capped returns the counter of deferred machines.
func Capped(cluster client.ObjectKey, lane string) float64 {
	return testutil.ToFloat64(capped.WithLabelValues(cluster.Namespace, cluster.Name, lane))
}

// StartedElsewhere returns the recent starts that the planner of a Cluster without machines counts.
func (r *Reconciler) StartedElsewhere(now time.Time) []time.Time {
	var all departurecap.Counts
	for _, c := range r.fleet {
		all = all.Plus(c.counts, r.Cap, now)
	}
	return all.Started
}

// SetShare sets the share of another Cluster in the machines of the fleet.
func (r *Reconciler) SetShare(cluster client.ObjectKey, share rails.Share) {
	r.cluster(cluster).share = share
}

// ShareOf returns the share of a Cluster in the machines of the fleet.
func (r *Reconciler) ShareOf(cluster client.ObjectKey) rails.Share { return r.cluster(cluster).share }
