// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	crds := func(e *envtest.Environment) {
		e.CRDDirectoryPaths = append(e.CRDDirectoryPaths, filepath.Join("..", "..", "config", "eviction-guard", "crd"))
	}
	os.Exit(testenv.Main(m, func(s *testenv.Server) {
		server = s
		if err := evictionv1.AddToScheme(s.Client.Scheme()); err != nil {
			panic(err)
		}
	}, crds))
}

// began is the start time of every world.
var began = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

// moveKey is the mark for the operator of these tests.
const moveKey = "db.example.com/move"

// world is a namespace of a workload cluster, with Nodes of its own. Creation times of objects come from the world's
// clock, in whole seconds, as the API server writes them.
type world struct {
	*testenv.Fixture

	ns         string
	nodes      []*corev1.Node
	clock      *clocktesting.FakePassiveClock
	policy     *evictionv1.ReschedulePolicy
	evictor    *eviction.Evictor
	reconciler *eviction.Evictor
	// late is the cache of the guards; nil is a cache that is never late.
	late *lateCache

	mu    sync.Mutex
	times map[types.UID]time.Time
}

// newWorld has that many Nodes, and a policy for pods with the label app=db.
func newWorld(t *testing.T, nodes int, change func(*evictionv1.ReschedulePolicySpec)) *world {
	t.Helper()
	w := &world{Fixture: server.Fixture(t), ns: server.Namespace(t), clock: clocktesting.NewFakePassiveClock(began), times: map[types.UID]time.Time{}}
	for range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
		w.Create(node)
		t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), node) })
		w.nodes = append(w.nodes, node)
	}
	w.policy = &evictionv1.ReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "db"}, Spec: evictionv1.ReschedulePolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		Request:     evictionv1.Request{Annotation: &evictionv1.Annotation{Key: moveKey, Value: "please"}},
	}}
	if change != nil {
		change(&w.policy.Spec)
	}
	w.Create(w.policy)
	w.restart(interceptor.Funcs{})
	return w
}

// newDrain is a world in which db-0 runs on the only Node, which is draining.
func newDrain(t *testing.T, change func(*evictionv1.ReschedulePolicySpec)) (*world, *corev1.Pod) {
	t.Helper()
	w := newWorld(t, 1, change)
	p := w.pod("db-0", 0)
	w.drain(0, true)
	return w, p
}

// newRequest is a newDrain in which the guard has marked db-0.
func newRequest(t *testing.T, change func(*evictionv1.ReschedulePolicySpec)) (*world, *corev1.Pod) {
	t.Helper()
	w, p := newDrain(t, change)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	return w, p
}

// restart starts a new guard with an empty memory. reads intercepts its reads of the API server.
func (w *world) restart(reads interceptor.Funcs) {
	get, list := reads.Get, reads.List
	reads.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if get != nil {
			if err := get(ctx, c, key, obj, opts...); err != nil {
				return err
			}
		}
		err := c.Get(ctx, key, obj, opts...)
		w.date(obj)
		return err
	}
	reads.List = func(ctx context.Context, c client.WithWatch, all client.ObjectList, opts ...client.ListOption) error {
		if list != nil {
			if err := list(ctx, c, all, opts...); err != nil {
				return err
			}
		}
		err := c.List(ctx, all, opts...)
		switch all := all.(type) {
		case *evictionv1.RescheduleRequestList:
			for i := range all.Items {
				w.date(&all.Items[i])
			}
		case *metav1.PartialObjectMetadataList:
			for i := range all.Items {
				w.date(&all.Items[i])
			}
		case *corev1.PodList:
			for i := range all.Items {
				w.date(&all.Items[i])
			}
		}
		return err
	}
	c := w.Recorded(reads)
	cache := client.Reader(indexed{c})
	if w.late != nil {
		cache = w.late
	}
	w.evictor = &eviction.Evictor{Live: c, Policies: c, Cache: cache, Write: actuate.New(dated{c, w}), Clock: w.clock, Taints: eviction.DrainTaints, NameProtection: eviction.DefaultNameProtection}
	w.reconciler = w.evictor
}

// indexed implements lists by RequestedTimeIndex as a cache does: an API server has no such field.
type indexed struct{ client.Reader }

// List implements client.Reader.
func (r indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var isMarked string
	rest := slices.DeleteFunc(slices.Clone(opts), func(o client.ListOption) bool {
		by, ok := o.(client.MatchingFields)
		isMarked += by[eviction.RequestedTimeIndex]
		return ok
	})
	err := r.Reader.List(ctx, list, rest...)
	if requests, ok := list.(*evictionv1.RescheduleRequestList); ok && isMarked != "" {
		requests.Items = slices.DeleteFunc(requests.Items, func(q evictionv1.RescheduleRequest) bool {
			return !slices.Contains(eviction.IndexRequestedTime(&q), isMarked)
		})
	}
	return err
}

// dated sets the creation time of new objects, as the API server does.
type dated struct {
	client.Client
	w *world
}

func (d dated) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := d.Client.Create(ctx, obj, opts...)
	d.w.date(obj)
	return err
}

// A lateCache shows each kind as it was some time ago, as informers do.
type lateCache struct {
	w                     *world
	pods, nodes, requests client.Reader
	// podLists counts lists of pods.
	podLists int
}

// Get implements client.Reader.
func (c *lateCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.of(obj).Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *lateCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, pods := list.(*corev1.PodList); pods {
		c.podLists++
	}
	return c.of(list).List(ctx, list, opts...)
}

func (c *lateCache) of(obj any) client.Reader {
	switch obj.(type) {
	case *corev1.Pod, *corev1.PodList:
		return c.pods
	case *corev1.Node:
		return c.nodes
	default:
		return c.requests
	}
}

// catchUp updates the kinds to their present state.
func (c *lateCache) catchUp(pods, nodes, requests bool) {
	c.w.Helper()
	show := func(objects ...client.Object) client.Reader {
		return fake.NewClientBuilder().WithScheme(c.w.Client.Scheme()).WithObjects(objects...).
			WithIndex(&evictionv1.RescheduleRequest{}, eviction.RequestedTimeIndex, eviction.IndexRequestedTime).Build()
	}
	if pods {
		list, trimmed := &corev1.PodList{}, []client.Object(nil)
		c.w.Must(c.w.Client.List(c.w.Context(), list, client.InNamespace(c.w.ns)))
		for i := range list.Items {
			c.w.date(&list.Items[i])
			if p := eviction.TrimPod(&list.Items[i]); p.DeletionTimestamp == nil {
				trimmed = append(trimmed, p)
			}
		}
		c.pods = show(trimmed...)
	}
	if nodes {
		var all []client.Object
		for _, node := range c.w.nodes {
			c.w.Read(node)
			all = append(all, node.DeepCopy())
		}
		c.nodes = show(all...)
	}
	if requests {
		var all []client.Object
		for _, r := range c.w.requests() {
			c.w.date(&r)
			all = append(all, &r)
		}
		c.requests = show(all...)
	}
}

// date replaces the creation time of an object by the world's. An unknown object was just created.
func (w *world) date(obj client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj.GetUID() == "" {
		return
	}
	at, known := w.times[obj.GetUID()]
	if !known {
		at = w.clock.Now().Truncate(time.Second)
		w.times[obj.GetUID()] = at
	}
	obj.SetCreationTimestamp(metav1.NewTime(at))
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// pod creates a pod that runs on a Node, or that has none yet.
func (w *world) pod(name string, node int) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": "db"}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if node >= 0 {
		p.Spec.NodeName = w.nodes[node].Name
	}
	w.Create(p)
	w.date(p)
	if node >= 0 {
		p.Status.Phase = corev1.PodRunning
		w.Must(w.Client.Status().Update(w.Context(), p))
	}
	return p
}

// leave deletes a pod at once.
func (w *world) leave(p *corev1.Pod) {
	w.Helper()
	w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})))
}

func (w *world) drain(node int, drained bool) {
	w.Helper()
	w.Edit(w.nodes[node], func() { w.nodes[node].Spec.Unschedulable = drained })
}

// try calls the Evictor as the webhook does.
func (w *world) try(name string) (eviction.Response, error) {
	return w.evictor.Evict(w.Context(), eviction.Attempt{Pod: client.ObjectKey{Namespace: w.ns, Name: name}, By: "kubectl"})
}

// evict calls the Evictor, and requires that answer and outcome.
func (w *world) evict(name string, want verdict.Answer, outcome string) eviction.Response {
	w.Helper()
	resp, err := w.try(name)
	w.Must(err)
	if resp.Answer != want || resp.Outcome != outcome {
		w.Errorf("%s: got %d %s, want %d %s", name, resp.Answer, resp.Outcome, want, outcome)
	}
	return resp
}

// isMarked reports whether a pod has the mark.
func (w *world) isMarked(p *corev1.Pod) bool {
	w.Helper()
	return w.Read(p) && p.Annotations[moveKey] == "please"
}

func (w *world) requests() []evictionv1.RescheduleRequest {
	w.Helper()
	list := &evictionv1.RescheduleRequestList{}
	w.Must(w.Client.List(w.Context(), list, client.InNamespace(w.ns)))
	return list.Items
}

// tend reconciles every request, and returns the results.
func (w *world) tend() (fates []verdict.Change) {
	w.Helper()
	for _, r := range w.requests() {
		done, err := w.reconciler.ReconcileRequest(w.Context(), client.ObjectKeyFromObject(&r))
		w.Must(err)
		fates = append(fates, done.Change)
	}
	return fates
}

// settle reconciles until no request of a remaining pod changes.
func (w *world) settle() {
	w.Helper()
	for range 3 {
		w.tend()
		w.pass(verdict.MarkRemovalDelay + time.Second)
	}
}

// wantTakenBack requires that no mark and no request is left.
func (w *world) wantTakenBack(p *corev1.Pod) {
	w.Helper()
	w.settle()
	if w.isMarked(p) || w.left() != "" {
		w.Errorf("annotations %v, left %s", p.Annotations, w.left())
	}
}

func (w *world) wantWrites(want ...string) {
	w.Helper()
	if !slices.Equal(w.Writes, want) {
		w.Errorf("written %v, want %v", w.Writes, want)
	}
	w.Writes = nil
}

// left lists requests that are left, and pods with marks of the guard.
func (w *world) left() string {
	w.Helper()
	var found []string
	for _, r := range w.requests() {
		found = append(found, fmt.Sprintf("request for %s (%s)", r.Spec.Pod.Name, r.Spec.Intent))
	}
	pods := &corev1.PodList{}
	w.Must(w.Client.List(w.Context(), pods, client.InNamespace(w.ns)))
	for _, p := range pods.Items {
		if at, ours := p.Annotations[evictionv1.RequestedAnnotation]; ours {
			found = append(found, fmt.Sprintf("%s is asked for since %s", p.Name, at))
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.Read(ns)
	for key := range ns.Annotations {
		if strings.HasPrefix(key, evictionv1.TrackingPrefix) {
			found = append(found, key)
		}
	}
	return strings.Join(found, "; ")
}
