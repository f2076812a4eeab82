// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// tester is the common interface of a test and a property.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Context() context.Context
}

// cluster is the name of the Cluster of a world.
var cluster = client.ObjectKey{Namespace: "team", Name: "lab"}

// world is a Cluster with two Nodes, a load balancer in front of them, and the two reconcilers. All write to one API
// server.
type world struct {
	tester
	client.WithWatch

	clock *clocktesting.FakePassiveClock
	// edge is the load balancer. drivers are all load balancers by name.
	edge    *edge
	drivers drivers
	gate    *actuate.Gate
	nodes   *detach.NodeReconciler
	lbs     *detach.BalancerReconciler
	// writes are the writes of the reconcilers.
	writes []string
	// fails is the number of writes before one fails, below zero for never. late means that only its response is lost.
	fails int
	late  bool
	// refuses is the name of an object whose patches the API server rejects.
	refuses string
	// made is the number of created objects.
	made int
	// lost is true while the workload cluster does not answer. blind is true while the cache has no pods yet.
	lost, blind bool
	// stale is a deleted pod that the cache still shows.
	stale *corev1.Pod
	// stopper records the calls to stop pods.
	stopper stopper
	// pods is the number of pods so far.
	pods int
}

var (
	errCrash   = errors.New("the connection broke")
	errInvalid = apierrors.NewInvalid(expv1.GroupVersion.WithKind("NodeAttachment").GroupKind(), "", nil)
)

func newWorld(t tester) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, expv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatalf("%v", err)
		}
	}
	w := &world{tester: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC)), edge: newEdge(), fails: -1, gate: &actuate.Gate{}}
	w.drivers = drivers{"edge": w.edge}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().
		WithStatusSubresource(&expv1.NodeAttachment{}, &expv1.LoadBalancer{}, &clusterv1.Machine{}).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, index.MachineByNodeName).
		WithIndex(&clusterv1.Machine{}, index.MachineProviderIDField, func(obj client.Object) []string { return []string{obj.(*clusterv1.Machine).Spec.ProviderID} }).
		WithIndex(&clusterv1.Machine{}, detach.AddressField, detach.IndexAddresses).
		WithIndex(&corev1.Node{}, detach.AddressField, detach.IndexAddresses).
		WithIndex(&corev1.Pod{}, detach.NodeField, detach.PodNode).Build()
	w.create(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name, UID: "cluster"}})
	w.create(w.balancerObject("edge"))
	for _, name := range []string{"ws-1", "ws-2"} {
		w.join(name, 1)
		w.edge.servers[name] = &server{address: "192.0.2." + name[3:]}
	}
	w.restart()
	return w
}

func (*world) balancerObject(name string) *expv1.LoadBalancer {
	lb := &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, UID: types.UID(name), Generation: 1}}
	lb.Spec.ClusterName, lb.Spec.DeadlineSeconds, lb.Spec.MinMembers = cluster.Name, 300, new(int32(1))
	return lb
}

// join creates a Node and its Machine, which have the same name.
func (w *world) join(name string, life int) {
	w.Helper()
	w.create(w.nodeObject(name, life))
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: name, UID: types.UID(fmt.Sprint("machine-", name, life)), Finalizers: []string{clusterv1.MachineFinalizer},
		Annotations: map[string]string{v1alpha1.PreDrainHookAnnotation: ""}, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
	}}
	m.Spec.ClusterName = cluster.Name
	w.create(m)
	m.Status.NodeRef.Name = name
	m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "192.0.2." + name[3:]}}
	w.must(w.Status().Update(w.Context(), m))
}

// rename changes the Node that a Machine refers to.
func (w *world) rename(name, other string) {
	w.Helper()
	m := w.machine(name)
	m.Status.NodeRef.Name = other
	w.must(w.Status().Update(w.Context(), m))
}

func (w *world) nodeObject(name string, life int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, "-", life))}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2." + name[3:]}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// restart replaces the manager with another one without state.
func (w *world) restart() {
	c := testenv.Gated(w.gate.Transport, w.recorded())
	clusters := clusters{clustercache.NewFakeClusterCache(c, cluster, detach.NodesWatch), w}
	w.nodes = (&detach.NodeReconciler{
		Pods:  &w.stopper,
		Clock: w.clock, Reader: c, Live: c, Actuate: actuate.NewGated(w.gate, c), ClusterCache: clusters, Recorder: &events.FakeRecorder{}, Taints: []string{"karpenter.sh/disrupted"},
	}).WithoutWatches(aside{clusters})
	w.lbs = &detach.BalancerReconciler{
		Clock: w.clock, Reader: c, Live: c, Actuate: actuate.NewGated(w.gate, c), Recorder: &events.FakeRecorder{},
		Drivers: w.drivers,
	}
}

// recorded returns the client of the reconcilers.
func (w *world) recorded() client.WithWatch {
	write := func(verb string, obj client.Object, send func() error) error {
		if w.fails == 0 {
			w.fails = -1
			if w.late {
				_ = send()
			}
			return errCrash
		}
		w.fails--
		if strings.HasPrefix(verb, "patch") && obj.GetName() == w.refuses {
			return errInvalid
		}
		err := send()
		if err == nil {
			w.writes = append(w.writes, fmt.Sprintf("%s %T %s", verb, obj, obj.GetName()))
		}
		return err
	}
	return interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write("create", obj, func() error {
				w.made++
				obj.SetUID(types.UID(fmt.Sprint("made-", w.made))) // As an API server does.
				return c.Create(ctx, obj, opts...)
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return write("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, part string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write("patch status", obj, func() error { return c.SubResource(part).Patch(ctx, obj, patch, opts...) })
		},
	})
}

// stopper counts, by Node, the calls since the Node came back.
type stopper struct{ stops map[string]int }

func (s *stopper) StopWithoutHook(_ context.Context, request types.NamespacedName, _ leaving.Departing, _ func(*corev1.Node) bool, _ time.Time) time.Duration {
	if s.stops == nil {
		s.stops = map[string]int{}
	}
	s.stops[request.Name]++
	return 0
}

func (s *stopper) ForgetWithoutHook(request types.NamespacedName) { delete(s.stops, request.Name) }
func (*stopper) Woken() source.Source                             { return nil }

// clusters is a cluster cache that may lose the connection.
type clusters struct {
	clustercache.ClusterCache
	w *world
}

func (c clusters) GetReader(ctx context.Context, key client.ObjectKey) (client.Reader, error) {
	if c.w.lost {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.ClusterCache.GetReader(ctx, key)
}

func (c clusters) GetUncachedClient(ctx context.Context, key client.ObjectKey) (client.Client, error) {
	if c.w.lost {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.ClusterCache.GetUncachedClient(ctx, key)
}

// aside is the second cache, for pods and DaemonSets.
type aside struct{ clusters }

func (a aside) Reader(ctx context.Context, key client.ObjectKey, namespaces []string) (client.Reader, error) {
	if a.w.blind || len(namespaces) == 0 {
		return nil, nil
	}
	reader, err := a.GetReader(ctx, key)
	if err != nil {
		return nil, err
	}
	return shows{reader, a.w.stale}, nil
}

// shows is a cache that shows a deleted pod.
type shows struct {
	client.Reader
	stale *corev1.Pod
}

func (s shows) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := s.Reader.List(ctx, list, opts...)
	if pods, ok := list.(*corev1.PodList); ok && s.stale != nil {
		pods.Items = append(pods.Items, *s.stale)
	}
	return err
}

func (aside) Stop(client.ObjectKey) {}

// turn runs each reconciler once, as events would. It tolerates conflicts and the errors that the test simulates; any
// other error fails the test.
func (w *world) turn() (busy bool) {
	w.Helper()
	before := len(w.writes) + w.edge.writes
	var requests []ctrl.Request
	for _, name := range []string{"", "ws-1", "ws-2"} {
		requests = append(requests, detach.RequestFor(cluster, name))
	}
	for _, req := range requests {
		result, err := w.nodes.Reconcile(w.Context(), req)
		w.allow(err)
		busy = busy || err != nil || result.RequeueAfter > 0
	}
	lbs := &expv1.LoadBalancerList{}
	w.must(w.List(w.Context(), lbs))
	for i := range lbs.Items {
		_, err := w.lbs.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&lbs.Items[i])})
		w.allow(err)
		busy = busy || err != nil
	}
	return busy || len(w.writes)+w.edge.writes != before
}

func (w *world) allow(err error) {
	w.Helper()
	if err != nil && !errors.Is(err, errCrash) && !errors.Is(err, errDown) && !errors.Is(err, errInvalid) && !apierrors.IsConflict(err) {
		w.Fatalf("reconciling: %v", err)
	}
}

// settle runs the reconcilers until nothing changes.
func (w *world) settle() {
	w.Helper()
	for range 50 {
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
		if !w.turn() {
			return
		}
	}
	w.Fatalf("nothing settles: %v, load balancer %+v", w.writes[max(0, len(w.writes)-10):], w.edge)
}

func (w *world) create(obj client.Object) {
	w.Helper()
	w.must(w.Create(w.Context(), obj))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%v", err)
	}
}

// node reads a Node, nil if there is none.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{}
	err := w.Get(w.Context(), client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return node
}

// edit changes a Node, as another party does.
func (w *world) edit(name string, change func(*corev1.Node)) {
	w.Helper()
	node := w.node(name)
	if node == nil {
		return
	}
	before := node.DeepCopy()
	change(node)
	w.must(w.Patch(w.Context(), node, client.MergeFrom(before), client.FieldOwner("kubectl")))
}

// machine reads a Machine, nil if there is none.
func (w *world) machine(name string) *clusterv1.Machine {
	w.Helper()
	m := &clusterv1.Machine{}
	err := w.Get(w.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return m
}

// leave deletes a Machine. With a reason, it also writes the departure record.
func (w *world) leave(name string, reason v1alpha1.DepartureReason) {
	w.Helper()
	m := w.machine(name)
	if m == nil || !m.DeletionTimestamp.IsZero() {
		return
	}
	if reason != "" {
		d := v1alpha1.Departure{Lane: reason.Lane(), Reason: reason, Since: metav1.NewTime(w.clock.Now()), MachineUID: m.UID, ActionID: "a"}
		m.Annotations[v1alpha1.DepartureAnnotation] = d.String()
		w.must(w.Update(w.Context(), m))
	}
	w.must(w.Delete(w.Context(), m))
}

// vanish removes a Machine, and its Node stays.
func (w *world) vanish(name string) {
	w.Helper()
	m := w.machine(name)
	if m == nil {
		return
	}
	m.Finalizers = nil
	w.must(w.Update(w.Context(), m))
	w.must(client.IgnoreNotFound(w.Delete(w.Context(), m)))
}

// attachment reads the NodeAttachment of a Node, nil if there is none.
func (w *world) attachment(name string) *expv1.NodeAttachment {
	w.Helper()
	a := &expv1.NodeAttachment{}
	err := w.Get(w.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: detach.AttachmentName(cluster.Name, name)}, a)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return a
}

// balancer reads the LoadBalancer, nil if there is none.
func (w *world) balancer() *expv1.LoadBalancer {
	w.Helper()
	lb := &expv1.LoadBalancer{}
	err := w.Get(w.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "edge"}, lb)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return lb
}

// cluster changes the Cluster.
func (w *world) cluster(change func(*clusterv1.Cluster)) {
	w.Helper()
	c := &clusterv1.Cluster{}
	w.must(w.Get(w.Context(), cluster, c))
	change(c)
	w.must(w.Update(w.Context(), c))
}

// edge is a load balancer with a configured server for each Node.
type edge struct {
	servers map[string]*server
	// down means that it does not answer. lists means that the driver then lists all members as unknown.
	down, lists bool
	// cloud means that it keeps drains, and that no membership lasts.
	cloud bool
	// half means that one of its two processes does not answer.
	half bool
	// writes counts the calls of Drain and Restore. reads counts the reads.
	writes, reads int
	// calls are the calls of Drain and Restore.
	calls []string
}

// server is one of its servers.
type server struct {
	address         string
	drains, blocked bool
	// refuses means that it rejects all commands.
	refuses     bool
	connections int64
}

var (
	errDown    = errors.New("connection refused")
	errRefused = errors.New("permission denied")
)

func newEdge() *edge { return &edge{servers: map[string]*server{}} }

func (e *edge) Discover(_ context.Context, node balancer.Node) (found []balancer.Membership, err error) {
	if e.reads++; e.down {
		return nil, errDown
	}
	if len(node.Addresses) == 0 {
		return nil, fmt.Errorf("node %s has no address: %w", node.Name, balancer.ErrNoIdentity)
	}
	for name, s := range e.servers {
		if slices.Contains(node.Addresses, s.address) {
			found = append(found, balancer.Membership{Pool: "web", Member: name, Address: s.address, Persistent: !e.cloud})
		}
	}
	return found, e.partly()
}

// partly returns the error of the process that does not answer.
func (e *edge) partly() error {
	if e.half {
		return errDown
	}
	return nil
}

func (e *edge) Status(_ context.Context, places []balancer.Membership) (statuses []balancer.Status, err error) {
	if e.reads++; e.down && e.lists {
		return slices.Repeat([]balancer.Status{{State: balancer.Unknown}}, len(places)), errDown
	}
	if e.down {
		return nil, errDown
	}
	for _, p := range places {
		others := 0
		for name, s := range e.servers {
			if name != p.Member && !s.drains && !s.blocked {
				others++
			}
		}
		s := e.at(p).status(others)
		s.Partial = e.half
		statuses = append(statuses, s)
	}
	return statuses, e.partly()
}

func (s *server) status(others int) balancer.Status {
	switch {
	case s == nil:
		return balancer.Status{State: balancer.Absent}
	case s.blocked:
		return balancer.Status{State: balancer.Disabled, Others: &others}
	case !s.drains:
		return balancer.Status{State: balancer.Attached, Others: &others}
	case s.connections > 0:
		return balancer.Status{State: balancer.Draining, Others: &others, Connections: new(s.connections)}
	default:
		return balancer.Status{State: balancer.Drained, Others: &others, Connections: new(int64(0))}
	}
}

// at returns the server of a membership, nil if there is none.
func (e *edge) at(p balancer.Membership) *server {
	if s := e.servers[p.Member]; s != nil && s.address == p.Address {
		return s
	}
	return nil
}

func (*edge) Elsewhere(node balancer.Node, p balancer.Membership) bool {
	return len(node.Addresses) > 0 && !slices.Contains(node.Addresses, p.Address)
}

func (e *edge) Drain(_ context.Context, places []balancer.Membership) error {
	return e.tell(places, true)
}

func (e *edge) Restore(_ context.Context, places []balancer.Membership) error {
	return e.tell(places, false)
}

func (e *edge) tell(places []balancer.Membership, drains bool) (err error) {
	call := "Restore"
	if drains {
		call = "Drain"
	}
	e.calls = append(e.calls, call)
	if e.writes++; e.down {
		return errDown
	}
	for _, p := range places {
		switch s := e.at(p); {
		case s == nil, s.blocked:
		case s.refuses:
			err = errRefused
		default:
			s.drains = drains
		}
	}
	return errors.Join(err, e.partly())
}

// drivers are the drivers of all load balancers.
type drivers map[string]*edge

func (d drivers) For(lb *expv1.LoadBalancer) (balancer.Driver, error) { return d[lb.Name], nil }

func (drivers) Forget(types.NamespacedName) {}

func (e *edge) Every() time.Duration { return time.Second }
func (e *edge) Volatile() bool       { return !e.cloud }

var _ balancer.Driver = &edge{}

// inWorld runs a test in a world.
func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	test(newWorld(t))
}
