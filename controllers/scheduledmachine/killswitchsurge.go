// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// reportKillSwitchSurge records a Warning on the Cluster if many of its kill switches were turned on within ten
// minutes. It delays nothing. It counts by the status of the ScheduledMachines in the cache, and uses the given sm
// instead of its cached version.
func (r *Reconciler) reportKillSwitchSurge(ctx context.Context, cluster *clusterv1.Cluster, sm *v1alpha1.ScheduledMachine, now time.Time) {
	if cluster == nil || r.surges.Reached(client.ObjectKeyFromObject(cluster), now) {
		return
	}
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Counting kill switches of Cluster")
		return
	}
	killed, machines := 0, 0
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == sm.Name {
			other = sm // The cache may not have its new status yet.
		}
		switch {
		case terminatedSince(other, now.Add(-lifecycle.RapidWindow)):
			killed++
			machines++
		case other.Status.MachineRef != nil:
			machines++
		}
	}
	if !lifecycle.Surge(killed, machines) || !r.surges.Allow(client.ObjectKeyFromObject(cluster), now) {
		return
	}
	r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, v1alpha1.KillSwitchSurgeEvent, "ReportKillSwitches",
		"%d kill switches turned on within %s among %d machines. Nothing is delayed. If it is a mistake, pause the Cluster now: "+
			"kubectl -n %s patch cluster %s --type merge -p '{\"spec\":{\"paused\":true}}'",
		killed, lifecycle.RapidWindow, machines, cluster.Namespace, cluster.Name)
}

// terminatedSince reports whether a kill switch took effect after the instant.
func terminatedSince(sm *v1alpha1.ScheduledMachine, since time.Time) bool {
	ready := conditions.Get(sm, v1alpha1.ReadyCondition)
	return sm.Status.Phase == v1alpha1.PhaseTerminated && ready != nil && ready.LastTransitionTime.After(since)
}
