// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
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
func (r *Reconciler) HostChanges() predicate.Predicate { return r.hostChanges() }

// OfHost returns which others of its host a change wakes.
func (r *Reconciler) OfHost(ctx context.Context, obj client.Object) []ctrl.Request {
	return r.ofHost(ctx, obj)
}

// Look finds out who else names the host of one that has no machine.
func (r *Reconciler) Look(ctx context.Context, sm *v1alpha1.ScheduledMachine) error {
	return r.observeHost(ctx, &scope{scheduled: sm})
}

// Fleet returns what counts the ScheduledMachines of a cache.
func Fleet(reader client.Reader, watchFilter string, elected <-chan struct{}) prometheus.Collector {
	return fleet{reader, watchFilter, elected}
}

// LateDepartures returns what counts the late Machines of a cache.
func LateDepartures(reader client.Reader, watchFilter string, clock clock.PassiveClock) prometheus.Collector {
	elected := make(chan struct{})
	close(elected)
	return lateDepartures{fleet{reader, watchFilter, elected}, clock}
}

// WithWatchFilter returns a reconciler as SetupWithManager makes it.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// OfReclaimed returns whom the end of a ReclaimedMachine wakes.
func (r *Reconciler) OfReclaimed(ctx context.Context, obj client.Object) []ctrl.Request {
	return r.ofReclaimed(ctx, obj)
}

// RequestDigest identifies the request that other ScheduledMachines of the same host record.
func RequestDigest(sm *v1alpha1.ScheduledMachine) string { return claimOf(sm).request }
