// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// pods is an API server with one pod per namespace. It records the watches.
type pods struct {
	mu       sync.Mutex
	watched  map[string]int
	selector string
	// slow blocks every response until it is closed.
	slow chan struct{}
}

func (p *pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	namespace := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/pods")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case query.Has("sendInitialEvents"): // as an old API server responds
		w.WriteHeader(http.StatusUnprocessableEntity)
		answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422})
	case query.Has("watch"):
		p.watches(namespace, 1, query.Get("labelSelector"))
		defer p.watches(namespace, -1, "")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		<-p.slow
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		list.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ingress", ResourceVersion: "1"}, Spec: corev1.PodSpec{NodeName: "n1"}}}
		answer(w, list)
	}
}

func answer(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		panic(err)
	}
}

func (p *pods) watches(namespace string, n int, selector string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched[namespace] += n
	if selector != "" {
		p.selector = selector
	}
}

// now returns the namespaces that are watched.
func (p *pods) now() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace, n := range p.watched {
		for range n {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	return all
}

// connections is a ClusterCache with a cluster that may be connected.
type connections struct {
	clustercache.ClusterCache
	client client.Client
	config *rest.Config
}

func (c *connections) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	if c.config == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.config, nil
}

func (c *connections) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.client, nil
}

// woken is a running controller.
type woken struct {
	//nolint:containedctx // A controller starts its sources with its own.
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

func (w woken) Watch(s source.Source) error { return s.Start(w.ctx, w.queue) }

// TestNamespaceCacheFollowsItsCluster follows the cache of one cluster.
func TestNamespaceCacheFollowsItsCluster(t *testing.T) {
	t.Parallel()
	api := &pods{watched: map[string]int{}, slow: make(chan struct{})}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	lab := client.ObjectKey{Namespace: "team", Name: "lab"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PodList"), meta.RESTScopeNamespace)
	clusters := &connections{client: fake.NewClientBuilder().WithRESTMapper(mapper).Build(), config: &rest.Config{Host: server.URL, Timeout: time.Second}}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(queue.ShutDown)
	named := func(name string) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	}
	aside := &workload.NamespaceCache{
		Cache: clusters, Controller: woken{ctx, queue},
		All: func(context.Context, client.ObjectKey) []ctrl.Request { return named("all") },
		Kinds: []workload.CachedKind{{
			Kind: &corev1.Pod{}, Keep: cache.ByObject{Label: labels.SelectorFromSet(labels.Set{"a": "b"})}, Predicate: predicate.Funcs{},
			Index: map[string]client.IndexerFunc{"node": func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }},
			Map: func(_ context.Context, _ client.ObjectKey, obj client.Object) []ctrl.Request {
				return named(obj.GetNamespace())
			},
		}},
	}
	ask := func(namespaces ...string) client.Reader {
		t.Helper()
		reader, err := aside.Reader(t.Context(), lab, namespaces)
		if err != nil {
			t.Fatal(err)
		}
		return reader
	}
	wantWatched := func(want ...string) {
		t.Helper()
		for until := time.Now().Add(10 * time.Second); !slices.Equal(api.now(), want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("namespaces %v are watched, want %v", api.now(), want)
			}
		}
	}
	wantWoken := func(want ...string) {
		t.Helper()
		for len(want) > 0 {
			req, _ := queue.Get()
			queue.Done(req)
			want = slices.DeleteFunc(want, func(w string) bool { return w == req.Name })
		}
	}
	if reader := ask("edge"); reader != nil || ask("edge") != nil {
		t.Error("it can be read before everything is here")
	}
	close(api.slow)
	wantWoken("edge", "all")
	reader := ask("edge")
	if reader == nil {
		t.Fatal("no request is enqueued after the sync")
	}
	for node, want := range map[string]int{"n1": 1, "n2": 0} {
		list := &corev1.PodList{}
		if err := reader.List(t.Context(), list, client.InNamespace("edge"), client.MatchingFields{"node": node}); err != nil || len(list.Items) != want {
			t.Errorf("%d pods on %s, error %v", len(list.Items), node, err)
		}
	}
	wantWatched("edge")
	if api.selector != "a=b" {
		t.Errorf("those of %q are watched", api.selector)
	}
	time.Sleep(1500 * time.Millisecond) // A watch outlasts the timeout of a call.
	wantWatched("edge")

	ask("edge", "web")
	wantWoken("web", "all")
	wantWatched("edge", "web")
	other := *clusters.config
	clusters.config = &other // It has reconnected.
	ask("edge", "web")
	wantWoken("all")
	wantWatched("edge", "web")
	clusters.config = nil
	if _, err := aside.Reader(t.Context(), lab, []string{"edge"}); !workload.NotConnected(err) {
		t.Errorf("without a connection it says %v", err)
	}
	wantWatched()
	clusters.config = &other
	ask("edge")
	wantWatched("edge")
	if ask() != nil {
		t.Error("it watches a namespace that was not requested")
	}
	wantWatched()
}
