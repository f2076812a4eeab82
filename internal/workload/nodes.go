// SPDX-License-Identifier: Apache-2.0

// Package workload answers one question: how are the Nodes of a workload cluster
// seen? All controllers share one cache of them for each cluster, whatever each
// waits for. It does not know what is on a Node.
package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Nodes wakes a controller when a Node changes.
type Nodes struct {
	// Name tells this watch from those of other controllers.
	Name string
	// Cache reaches the clusters.
	Cache clustercache.ClusterCache
	// Controller is woken.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// Map returns whom a Node of a cluster concerns.
	Map func(ctx context.Context, cluster client.ObjectKey, node client.Object) []ctrl.Request
	// Predicate lets the changes through that matter.
	Predicate predicate.Predicate
}

// Watch watches the Nodes of a cluster. It is idempotent. A cluster that is not
// connected is clustercache.ErrClusterNotConnected.
func (n Nodes) Watch(ctx context.Context, cluster client.ObjectKey) error {
	return n.Cache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    n.Name,
		Watcher: n.Controller,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, node client.Object) []ctrl.Request {
			return n.Map(ctx, cluster, node)
		}),
		Predicates: []predicate.TypedPredicate[client.Object]{n.Predicate},
	}))
}

// Node returns the Node of that name, nil if there is none. A cluster that is not
// connected is clustercache.ErrClusterNotConnected.
func Node(ctx context.Context, cache clustercache.ClusterCache, cluster client.ObjectKey, name string) (*corev1.Node, error) {
	reader, err := cache.GetReader(ctx, cluster)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	return node, nil
}
