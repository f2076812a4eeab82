// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Metrics that are not collected from the cache.
var (
	Transitions           = transitions
	TransitionLag         = transitionLag
	Evaluations           = evaluations
	KillSwitchActivations = killSwitchActivations
)

// ClusterChanges filters for the changes of a Cluster that enqueue its ScheduledMachines.
var ClusterChanges = clusterChanges

// HostChanges filters for the changes of a ScheduledMachine that enqueue others of its host.
var HostChanges = hostChanges

// OfHost returns the ScheduledMachines of the same host that a change enqueues.
func (r *Reconciler) OfHost(ctx context.Context, obj client.Object) []ctrl.Request {
	return r.ofHost(ctx, obj)
}

// Look runs observeHost for a ScheduledMachine without a machine.
func (r *Reconciler) Look(ctx context.Context, sm *v1alpha1.ScheduledMachine) error {
	return r.observeHost(ctx, &scope{scheduled: sm})
}

// Fleet returns the collector of ScheduledMachines.
func Fleet(reader client.Reader, clock clock.PassiveClock, watchFilter string, elected <-chan struct{}) prometheus.Collector {
	return fleet{reader, clock, watchFilter, elected}
}

// WithWatchFilter sets the watch filter, like SetupWithManager.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// OfReclaimed returns the ScheduledMachines that the deletion of a ReclaimedMachine enqueues.
func (r *Reconciler) OfReclaimed(ctx context.Context, obj client.Object) []ctrl.Request {
	return r.ofReclaimed(ctx, obj)
}

// RequestDigest returns the digest of a request, which other ScheduledMachines of the same host record.
var RequestDigest = requestDigest
