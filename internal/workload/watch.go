// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Watch wakes a controller when an object of a kind changes in a workload cluster.
type Watch struct {
	// Name tells this watch from every other, those of other controllers included.
	Name string
	// Kind is an empty object of the kind.
	Kind client.Object
	// Cache reaches the clusters.
	Cache clustercache.ClusterCache
	// Controller is woken.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// Map returns whom an object of a cluster concerns.
	Map func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request
	// Predicate lets the changes through that matter.
	Predicate predicate.Predicate
	// Handler changes what handles the events; nil leaves it.
	Handler func(handler.EventHandler) handler.EventHandler
}

// Start watches a cluster. It is idempotent. For a cluster without a connection
// the error is one that NotConnected reports.
func (w Watch) Start(ctx context.Context, cluster client.ObjectKey) error {
	h := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []ctrl.Request {
		return w.Map(ctx, cluster, obj)
	})
	if w.Handler != nil {
		h = w.Handler(h)
	}
	return w.Cache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         w.Name,
		Watcher:      w.Controller,
		Kind:         w.Kind,
		EventHandler: h,
		Predicates:   []predicate.TypedPredicate[client.Object]{w.Predicate},
	}))
}
