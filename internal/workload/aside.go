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

// An Aside is a cache beside the ClusterCache, of kinds of which that one keeps others, or
// none: it has one set of objects of a kind for all clusters. An Aside keeps some namespaces of
// those clusters that are asked for, and goes by the ClusterCache's connections. It is safe for
// concurrent use.
type Aside struct {
	// Cache reaches the clusters.
	Cache clustercache.ClusterCache
	// Kinds are what is kept.
	Kinds []AsideKind
	// Controller is woken.
	Controller clustercache.SourceWatcher[ctrl.Request]
	// All returns whom it concerns that a cluster can be read now.
	All func(ctx context.Context, cluster client.ObjectKey) []ctrl.Request

	mu   sync.Mutex
	open map[client.ObjectKey]*aside
}

// An AsideKind is a kind that an Aside keeps.
type AsideKind struct {
	// Kind is an empty object of the kind.
	Kind client.Object
	// Keep is what of it is kept. Its namespaces are those that are asked for.
	Keep cache.ByObject
	// Index is what it can be listed by, by field.
	Index map[string]client.IndexerFunc
	// Map returns whom an object of a cluster concerns.
	Map func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request
	// Predicate lets the changes through that matter.
	Predicate predicate.Predicate
}

// aside is the cache of one cluster.
type aside struct {
	cache.Cache
	// connection is that of the ClusterCache with which it was made.
	connection any
	namespaces []string
	// complete says that all that there was at the beginning is here.
	complete atomic.Bool
	stop     context.CancelFunc
}

// Reader returns what reads these namespaces of a cluster: nil while not everything is here, and
// where no namespace is asked for. The error of a cluster that is not connected is
// clustercache.ErrClusterNotConnected.
func (a *Aside) Reader(ctx context.Context, cluster client.ObjectKey, namespaces []string) (client.Reader, error) {
	if len(namespaces) == 0 {
		a.Stop(cluster)
		return nil, nil
	}
	connection, err := a.Cache.GetRESTConfig(ctx, cluster)
	if err != nil {
		a.Stop(cluster)
		return nil, err
	}
	a.mu.Lock()
	c := a.open[cluster]
	a.mu.Unlock()
	if c == nil || c.connection != any(connection) || !slices.Equal(c.namespaces, namespaces) {
		c = &aside{namespaces: namespaces}
		if err := a.start(ctx, cluster, c); err != nil {
			return nil, fmt.Errorf("watching namespaces %s: %w", namespaces, err)
		}
	}
	if !c.complete.Load() {
		return nil, nil
	}
	return c, nil
}

// Stop forgets a cluster.
func (a *Aside) Stop(cluster client.ObjectKey) { a.replace(cluster, nil) }

// replace has another cache be that of a cluster.
func (a *Aside) replace(cluster client.ObjectKey, by *aside) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.open[cluster]; c != nil {
		c.stop()
	}
	delete(a.open, cluster)
	if by == nil {
		return
	}
	if a.open == nil {
		a.open = map[client.ObjectKey]*aside{}
	}
	a.open[cluster] = by
}

// start makes the cache of a cluster. It runs as long as the controller, or until it is stopped.
func (a *Aside) start(ctx context.Context, cluster client.ObjectKey, c *aside) error {
	if err := a.make(ctx, cluster, c); err != nil {
		return err
	}
	return a.Controller.Watch(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		ctx, c.stop = context.WithCancel(ctx)
		for _, k := range a.Kinds {
			if err := a.watch(ctx, cluster, c, k, queue); err != nil {
				c.stop()
				return err
			}
		}
		a.replace(cluster, c)
		go func() { _ = c.Start(ctx) }()
		go func() {
			if !c.WaitForCacheSync(ctx) {
				return
			}
			c.complete.Store(true)
			for _, req := range a.All(ctx, cluster) {
				queue.Add(req)
			}
		}()
		return nil
	}))
}

func (a *Aside) make(ctx context.Context, cluster client.ObjectKey, c *aside) error {
	config, err := a.Cache.GetRESTConfig(ctx, cluster)
	if err != nil {
		return err
	}
	//nolint:forbidigo // It knows the kinds of the cluster.
	known, err := a.Cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return err
	}
	keep := map[client.Object]cache.ByObject{}
	for _, k := range a.Kinds {
		k.Keep.Namespaces = map[string]cache.Config{}
		for _, namespace := range c.namespaces {
			k.Keep.Namespaces[namespace] = cache.Config{}
		}
		keep[k.Kind] = k.Keep
	}
	c.connection = config
	lasting := *config
	lasting.Timeout = 0 // A watch has none.
	c.Cache, err = cache.New(&lasting, cache.Options{Scheme: known.Scheme(), Mapper: known.RESTMapper(), ByObject: keep})
	return err
}

// watch wakes the controller when an object of a kind changes.
func (a *Aside) watch(ctx context.Context, cluster client.ObjectKey, c *aside, k AsideKind, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
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
