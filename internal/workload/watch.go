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

// Watch enqueues requests at a controller when an object of a kind changes in a workload cluster.
type Watch struct {
	// Name must be unique among all watches of all controllers.
	Name string
	// Kind is an empty object of the kind.
	Kind client.Object
	// Cache has the connections to the clusters.
	Cache clustercache.ClusterCache
	// Controller is the controller whose queue gets the requests.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// Map returns the requests for an object of a cluster.
	Map func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request
	// Predicate selects the events.
	Predicate predicate.Predicate
	// Handler wraps the event handler. It may be nil.
	Handler func(handler.EventHandler) handler.EventHandler
}

// Start watches a cluster. It is idempotent. The error for a cluster without a connection is one that
// NotConnected reports.
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
