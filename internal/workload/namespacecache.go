// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A NamespaceCache is a cache of additional kinds of workload clusters. The ClusterCache keeps one selection of each
// kind for all clusters. A NamespaceCache keeps only requested namespaces of requested clusters. It uses the
// connections of the ClusterCache. It is safe for concurrent use.
type NamespaceCache struct {
	// Cache has the connections to the clusters.
	Cache clustercache.ClusterCache
	// Kinds are the kinds in the cache.
	Kinds []CachedKind
	// Controller is the controller whose queue gets the requests.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// All returns the requests to enqueue when the cache of a cluster is synced.
	All func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request

	mu   sync.Mutex
	open map[client.ObjectKey]*clusterNamespaces
}

// A CachedKind is a kind in a NamespaceCache.
type CachedKind struct {
	// Kind is an empty object of the kind.
	Kind client.Object
	// Keep selects and transforms the objects. Its Namespaces are overwritten.
	Keep cache.ByObject
	// Index has the field indexes.
	Index map[string]client.IndexerFunc
	// Map returns the requests for an object of a cluster.
	Map func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request
	// Predicate selects the events.
	Predicate predicate.Predicate
}

// clusterNamespaces is the cache of one cluster.
type clusterNamespaces struct {
	cache.Cache
	// connection is the connection of the ClusterCache when this cache was created.
	connection any
	namespaces []string
	// complete reports that the cache is synced.
	complete atomic.Bool
	stop     context.CancelFunc
}

// Reader returns a reader of these namespaces of a cluster. It creates the cache if necessary. The reader is
// nil until the cache is synced, and if namespaces is empty. The error for a cluster that is not connected is
// clustercache.ErrClusterNotConnected.
func (n *NamespaceCache) Reader(ctx context.Context, cluster client.ObjectKey, namespaces []string) (client.Reader, error) {
	if len(namespaces) == 0 {
		n.Stop(cluster)
		return nil, nil
	}
	connection, err := n.Cache.GetRESTConfig(ctx, cluster)
	if err != nil {
		n.Stop(cluster)
		return nil, err
	}
	n.mu.Lock()
	c := n.open[cluster]
	n.mu.Unlock()
	if c == nil || c.connection != any(connection) || !slices.Equal(c.namespaces, namespaces) {
		c = &clusterNamespaces{namespaces: namespaces}
		if err := n.start(ctx, cluster, c); err != nil {
			return nil, fmt.Errorf("watching namespaces %s: %w", namespaces, err)
		}
	}
	if !c.complete.Load() {
		return nil, nil
	}
	return c, nil
}

// Stop stops and drops the cache of a cluster.
func (n *NamespaceCache) Stop(cluster client.ObjectKey) { n.replace(cluster, nil) }

// replace stops the cache of a cluster and stores another one.
func (n *NamespaceCache) replace(cluster client.ObjectKey, by *clusterNamespaces) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.open[cluster]; c != nil {
		c.stop()
	}
	delete(n.open, cluster)
	if by == nil {
		return
	}
	if n.open == nil {
		n.open = map[client.ObjectKey]*clusterNamespaces{}
	}
	n.open[cluster] = by
}

// start creates the cache of a cluster. It runs until the controller ends or Stop is called.
func (n *NamespaceCache) start(ctx context.Context, cluster client.ObjectKey, c *clusterNamespaces) error {
	if err := n.create(ctx, cluster, c); err != nil {
		return err
	}
	return n.Controller.Watch(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		ctx, c.stop = context.WithCancel(ctx)
		for _, k := range n.Kinds {
			if err := n.watch(ctx, cluster, c, k, queue); err != nil {
				c.stop()
				return err
			}
		}
		n.replace(cluster, c)
		go func() { _ = c.Start(ctx) }()
		go func() {
			if !c.WaitForCacheSync(ctx) {
				return
			}
			c.complete.Store(true)
			for _, req := range n.All(ctx, cluster) {
				queue.Add(req)
			}
		}()
		return nil
	}))
}

func (n *NamespaceCache) create(ctx context.Context, cluster client.ObjectKey, c *clusterNamespaces) error {
	config, err := n.Cache.GetRESTConfig(ctx, cluster)
	if err != nil {
		return err
	}
	//nolint:forbidigo // It knows the kinds of the cluster.
	known, err := n.Cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return err
	}
	keep := map[client.Object]cache.ByObject{}
	for _, k := range n.Kinds {
		k.Keep.Namespaces = map[string]cache.Config{}
		for _, namespace := range c.namespaces {
			k.Keep.Namespaces[namespace] = cache.Config{}
		}
		keep[k.Kind] = k.Keep
	}
	c.connection = config
	lasting := *config
	lasting.Timeout = 0 // A watch has no timeout.
	c.Cache, err = cache.New(&lasting, cache.Options{Scheme: known.Scheme(), Mapper: known.RESTMapper(), ByObject: keep})
	return err
}

// watch enqueues requests when an object of a kind changes.
func (n *NamespaceCache) watch(ctx context.Context, cluster client.ObjectKey, c *clusterNamespaces, k CachedKind, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	for field, extract := range k.Index {
		if err := c.IndexField(ctx, k.Kind, field, extract); err != nil {
			return err
		}
	}
	informer, err := c.GetInformer(ctx, k.Kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	return (&source.Informer{
		Informer:   informer,
		Predicates: []predicate.Predicate{k.Predicate},
		Handler: handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []ctrl.Request {
			return k.Map(ctx, cluster, obj)
		}),
	}).Start(ctx, queue)
}
