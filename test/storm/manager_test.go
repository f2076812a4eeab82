// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// lease is the lease duration of the product.
const lease = 15 * time.Second

// A manager is one process of the product: the controllers that make machines leave, set up as in the product, with
// their own cache. Its memory starts empty.
type manager struct {
	w *world
	// ahead is how far its clock is ahead.
	ahead time.Duration
	// late returns how late its cache shows a change; nil means at once.
	late func(change) time.Duration

	mu       sync.Mutex
	cache    objects
	index    map[string]map[id]bool
	handlers map[string][]toolscache.ResourceEventHandler
	joined   chan struct{} // one for each handler
	watched  map[string]bool
	reach    []func() // the functions that enqueue objects which wait for a workload cluster

	pending     []delivery
	controllers []*running
	apiClock    *apiclock.Clock
	stop        context.CancelFunc
	ended       sync.WaitGroup
}

// running is a controller of a manager.
type running struct {
	controller.Controller
	queue *queue
	made  chan struct{} // closed when there is a queue
}

// A delivery is a change that a cache must still show.
type delivery struct {
	at time.Time
	change
}

// start starts a manager with an empty memory.
func (w *world) start() *manager {
	w.Helper()
	m := &manager{
		w: w, cache: w.api.objects.copied(), index: map[string]map[id]bool{}, handlers: map[string][]toolscache.ResourceEventHandler{},
		joined: make(chan struct{}, 100), watched: map[string]bool{},
	}
	for _, all := range m.cache {
		for i, obj := range all {
			m.reindex(i, nil, obj)
		}
	}
	m.apiClock = apiclock.New(m)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if err := m.setUp(); err != nil {
		w.Fatal(err)
	}
	for _, c := range m.controllers {
		m.ended.Go(func() { _ = c.Start(ctx) })
	}
	for _, c := range m.controllers {
		<-c.made
		<-c.queue.waiting
		c.queue.sorted()
	}
	w.managers = append(w.managers, m)
	return m
}

// kill ends a manager at any point.
func (w *world) kill(m *manager) {
	m.stop()
	m.ended.Wait()
	w.managers = slices.DeleteFunc(w.managers, func(other *manager) bool { return other == m })
}

// Now returns the time of the manager's clock.
func (m *manager) Now() time.Time { return m.w.now.Add(m.ahead) }

// Since implements clock.PassiveClock.
func (m *manager) Since(t time.Time) time.Duration { return m.Now().Sub(t) }

// hourAgo is a manager's clock an hour ago.
type hourAgo struct{ *manager }

func (c hourAgo) Now() time.Time { return c.manager.Now().Add(-time.Hour) }

// settingUp is locked while a manager is set up, because the registries are global.
var settingUp sync.Mutex

// setUp wires the controllers as controllers.SetupWithManager does.
func (m *manager) setUp() error {
	settingUp.Lock()
	defer settingUp.Unlock()
	metrics.Registry = prometheus.NewRegistry() // Each process has its own registry.
	w, cached, live := m.w, connection{m, true}, connection{m, false}
	gate := &actuate.Gate{Paused: w.paused}
	rush, write, hookFilter := &wake.ReclaimTracker{}, actuate.NewGated(gate, testenv.Gated(gate.Transport, cached)), ""
	read := children.Reader{Cached: cached, Live: live}
	clusters := clusters{m: m}
	planner := &departure.Reconciler{
		Clock: m, APIClock: m.apiClock, Actuate: write, Cap: 50_000, Lease: lease, WipeGuard: true,
		Reader: cached, Live: live, Recorder: recorder{w},
	}
	switch w.cut {
	case "cap":
		planner.Cap = 0
	case "wipe guard":
		planner.WipeGuard = false
	case "warm-up": // Without warm-up, a new manager takes the first state for a long-known one.
		dry := &actuate.Gate{DryRun: true}
		planner.Clock, planner.Actuate = hourAgo{m}, actuate.NewGated(dry, testenv.Gated(dry.Transport, cached))
		for _, c := range inOrder(m.cache["Cluster"]) {
			if _, err := planner.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}); err != nil {
				return err
			}
		}
		planner.Clock, planner.Actuate = m, write
	case "machine hook's question":
		hookFilter = "another manager" // The planner does not plan these machines, and no label keeps the hooks from it.
	}
	return errors.Join(
		planner.SetupWithManager(m.ofController(), m.options()),
		m.scheduledMachines(&scheduledmachine.Reconciler{
			Clock: m, Reader: cached, Live: live, Children: read, Actuate: write, ClusterCache: clusters, Recorder: recorder{w}, ReclaimTracker: rush,
		}),
		(&reclaim.Reconciler{
			Clock: m, Reader: cached, Children: read, Actuate: write, ClusterCache: clusters, Recorder: recorder{w}, ReclaimTracker: rush,
		}).SetupWithManager(m.ofController(), "", m.options()),
		(&departure.HookReconciler{
			Clock: m, Reader: cached, Live: live, Actuate: write, Recorder: recorder{w}, WatchFilter: hookFilter,
		}).SetupWithManager(m.ofController(), m.options()),
	)
}

// scheduledMachines sets up r. The kinds of children are known from the start.
func (m *manager) scheduledMachines(r *scheduledmachine.Reconciler) error {
	if err := r.SetupWithManager(m.ofController(), "", m.options()); err != nil {
		return err
	}
	c := m.controllers[len(m.controllers)-1]
	r.Watch = func(client.Object) error { return nil }
	wakes := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { wakeParent(c, obj) },
		UpdateFunc: func(_, obj any) { wakeParent(c, obj) },
		DeleteFunc: func(obj any) { wakeParent(c, obj) },
	}
	for _, kind := range []string{bootstrapKind, infrastructureKind} {
		m.handlers[kind] = append(m.handlers[kind], wakes)
	}
	return nil
}

func wakeParent(c *running, obj any) {
	for _, req := range wake.OfChild(context.Background(), obj.(client.Object)) {
		c.queue.Add(req)
	}
}

// options are the options of the next controller.
func (m *manager) options() controller.Options {
	c := &running{made: make(chan struct{})}
	m.controllers = append(m.controllers, c)
	return controller.Options{
		MaxConcurrentReconciles: 1, RecoverPanic: new(false), SkipNameValidation: new(true),
		NewQueue: func(_ string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			c.queue = newQueue(func() time.Time { return m.w.now }, limiter)
			close(c.made)
			return c.queue
		},
	}
}

// hear samples the Date header of an answer of the API server.
func (m *manager) hear() {
	told := m.w.now.Add(m.w.apiAhead)
	transport := m.apiClock.Transport(answers(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {told.UTC().Format(http.TimeFormat)}}}, nil
	}))
	if _, err := transport.RoundTrip(nil); err != nil { //nolint:bodyclose // It has none.
		m.w.Error(err)
	}
}

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// expect schedules a change for the cache.
func (m *manager) expect(c change) {
	at := m.w.now
	if m.late != nil {
		at = at.Add(m.late(c))
	}
	if n := len(m.pending); n > 0 && at.Before(m.pending[n-1].at) {
		at = m.pending[n-1].at
	}
	m.pending = append(m.pending, delivery{at, c})
}

// deliver shows the due changes in the cache, and reports whether there were any.
func (m *manager) deliver() bool {
	n := 0
	for n < len(m.pending) && !m.pending[n].at.After(m.w.now) {
		n++
	}
	due := m.pending[:n]
	m.pending = m.pending[n:]
	for _, d := range due {
		m.show(d.change)
	}
	return n > 0
}

// show shows a change in the cache, whatever the cache has shown before.
func (m *manager) show(c change) {
	was, _ := m.cache.get(c.id)
	if c.to == nil {
		m.cache.remove(c.id)
	} else {
		m.cache.set(c.id, c.to)
	}
	m.reindex(c.id, was, c.to)
	for _, h := range m.handlers[c.id.kind] {
		switch {
		case c.to == nil && was != nil:
			h.OnDelete(was)
		case was == nil && c.to != nil:
			h.OnAdd(c.to, false)
		case c.to != nil:
			h.OnUpdate(was, c.to)
		}
	}
}

func (m *manager) reindex(i id, was, is client.Object) {
	for _, key := range indexKeys(was) {
		delete(m.index[key], i)
	}
	for _, key := range indexKeys(is) {
		if m.index[key] == nil {
			m.index[key] = map[id]bool{}
		}
		m.index[key][i] = true
	}
}

// indexKeys returns the index keys of an object. They contain the kind, because two kinds may have a field with one
// name.
func indexKeys(obj client.Object) (keys []string) {
	under := func(field, value string) { keys = append(keys, indexKey(kindOf(obj), field, value)) }
	switch obj := obj.(type) {
	case *v1alpha1.ScheduledMachine:
		under(wake.ClusterIndex, obj.Spec.ClusterName)
		for _, host := range scheduledmachine.HostKeys(obj) {
			under(scheduledmachine.HostIndex, host)
		}
		if ref := obj.Status.NodeRef; ref != nil {
			under(wake.NodeIndex, ref.Name)
		}
	case *clusterv1.Machine:
		under(index.MachineNodeNameField, obj.Status.NodeRef.Name)
	}
	return keys
}

func indexKey(kind, field, value string) string { return kind + "/" + field + "=" + value }

func (m *manager) indexed(kind, field, value string) []client.Object {
	ids := m.index[indexKey(kind, field, value)]
	found := make(map[id]client.Object, len(ids))
	for i := range ids {
		found[i] = m.cache[kind][i]
	}
	return inOrder(found)
}

// ofController is the ctrl.Manager for the setup of a controller.
func (m *manager) ofController() ctrl.Manager { return &scaffold{m: m} }

// A scaffold implements the part of ctrl.Manager that the setup of a controller needs.
type scaffold struct {
	ctrl.Manager

	m *manager
}

func (s *scaffold) GetScheme() *runtime.Scheme              { return scheme }
func (s *scaffold) GetRESTMapper() meta.RESTMapper          { return nil }
func (s *scaffold) GetLogger() logr.Logger                  { return logr.Discard() }
func (s *scaffold) GetControllerOptions() config.Controller { return config.Controller{} }
func (s *scaffold) GetCache() cache.Cache                   { return informers{m: s.m} }
func (s *scaffold) GetClient() client.Client                { return connection{s.m, true} }
func (s *scaffold) Elected() <-chan struct{}                { return nil }

func (s *scaffold) Add(r ctrlmanager.Runnable) error {
	s.m.controllers[len(s.m.controllers)-1].Controller = r.(controller.Controller)
	return nil
}

// informers implement the cache of a manager.
type informers struct {
	cache.Cache

	m *manager
}

func (i informers) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return informer{m: i.m, kind: kindOf(obj)}, nil
}

func (i informers) WaitForCacheSync(context.Context) bool { return true }

type informer struct {
	cache.Informer

	m    *manager
	kind string
}

func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	i.m.handlers[i.kind] = append(i.m.handlers[i.kind], h)
	for _, obj := range inOrder(i.m.cache[i.kind]) {
		h.OnAdd(obj, true)
	}
	i.m.joined <- struct{}{}
	return synced{}, nil
}

type synced struct{}

func (synced) HasSynced() bool                          { return true }
func (synced) HasSyncedChecker() toolscache.DoneChecker { return nil }

// clusters connects to the one workload cluster, whose Nodes are in the same API server.
type clusters struct {
	clustercache.ClusterCache

	m *manager
}

func (c clusters) down() error {
	if c.m.w.unreachable {
		return clustercache.ErrClusterNotConnected
	}
	return nil
}

func (c clusters) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return connection{c.m, false}, c.down()
}

func (c clusters) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return connection{c.m, false}, c.down()
}

func (c clusters) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return connection{c.m, true}, c.down()
}

func (c clusters) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, clustercache.ErrClusterNotConnected
}

func (c clusters) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: c.m.w.now, LastProbeSuccessTime: c.m.w.now}
}

func (c clusters) Watch(_ context.Context, _ client.ObjectKey, watcher clustercache.Watcher) error {
	if err := c.down(); err != nil || c.m.watched[watcher.Name()] {
		return err
	}
	c.m.watched[watcher.Name()] = true
	for len(c.m.joined) > 0 {
		<-c.m.joined
	}
	if err := watcher.Watch(informers{m: c.m}); err != nil {
		return err
	}
	<-c.m.joined
	return nil
}

func (c clusters) GetClusterSource(_ string, of func(context.Context, client.Object) []ctrl.Request, _ ...clustercache.GetClusterSourceOption) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		c.m.reach = append(c.m.reach, func() {
			for _, cluster := range inOrder(c.m.cache["Cluster"]) {
				for _, req := range of(ctx, cluster) {
					queue.Add(req)
				}
			}
		})
		return nil
	})
}
