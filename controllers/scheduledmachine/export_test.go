// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Metrics are those that are not counted from the cache.
var (
	Transitions           = transitions
	TransitionLag         = transitionLag
	Evaluations           = evaluations
	KillSwitchActivations = killSwitchActivations
)

// ClusterChanges is which changes of a Cluster wake its ScheduledMachines.
var ClusterChanges = clusterChanges

// HostChanges is which changes of a ScheduledMachine wake others of its host.
var HostChanges = hostChanges

// OfHost returns which others of its host a change wakes.
func (r *Reconciler) OfHost(ctx context.Context, obj client.Object) []ctrl.Request {
	return r.ofHost(ctx, obj)
}

// Fleet returns what counts the ScheduledMachines of a cache.
func Fleet(reader client.Reader, watchFilter string, elected <-chan struct{}) prometheus.Collector {
	return fleet{reader, watchFilter, elected}
}

// WithWatchFilter returns a reconciler as SetupWithManager makes it.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}
