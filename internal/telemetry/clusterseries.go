// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// StartClusterSeries calls start for the Cluster of each ScheduledMachine that is created or changed, so that
// its counters exist before their first increase. It does not call start for a Cluster that is absent or being
// deleted. It enqueues nothing.
func StartClusterSeries(reader client.Reader, start func(cluster client.ObjectKey)) handler.EventHandler {
	known := func(ctx context.Context, obj client.Object) {
		sm, ok := obj.(*v1alpha1.ScheduledMachine)
		if !ok {
			return
		}
		cluster, key := &clusterv1.Cluster{}, client.ObjectKey{Namespace: sm.Namespace, Name: sm.Spec.ClusterName}
		switch err := reader.Get(ctx, key, cluster); {
		case client.IgnoreNotFound(err) != nil:
			ctrl.LoggerFrom(ctx).Error(err, "Reading Cluster to start its metrics", "Cluster", key)
		case err == nil && cluster.DeletionTimestamp.IsZero():
			start(key)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			known(ctx, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			known(ctx, e.ObjectNew)
		},
	}
}

// RemoveClusterSeries calls remove for each Cluster that is deleted. It enqueues nothing.
func RemoveClusterSeries(remove func(cluster client.ObjectKey)) handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		remove(client.ObjectKeyFromObject(e.Object))
	}}
}
