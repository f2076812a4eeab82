// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

// laneWorkers is the number of workers in the manager.
const laneWorkers = 100

// lane is the controller with its workers, on a management cluster that never lists objects of kind Flaky. Their
// conversion webhook is down.
type lane struct {
	t     *testing.T
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
	store client.WithWatch
	// readable means that Flaky objects are listed: then only writes call the webhook.
	readable bool

	mu sync.Mutex
	// silent means that the workload cluster accepts writes and never responds.
	silent bool
	// deleted has the time at which each Machine was deleted.
	deleted map[string]time.Time
	// most is the maximum number of concurrent calls to the webhook, reads the current number.
	most, reads int
	// longest is the longest duration of such a call.
	longest time.Duration
}

func newLane(t *testing.T, readable bool, objects ...client.Object) *lane {
	t.Helper()
	l := &lane{t: t, readable: readable, deleted: map[string]time.Time{}}
	l.store = inMemory(t, objects...)
	c := interceptor.NewClient(l.store, interceptor.Funcs{Get: l.get, Delete: l.delete, Patch: l.patch})
	r := (&reclaim.Reconciler{
		Clock: clock.RealClock{}, Reader: c, Actuate: actuate.New(c), Recorder: &events.FakeRecorder{}, Hooks: children.BypassHooks,
		ReclaimTracker: &wake.ReclaimTracker{}, Children: children.Reader{Cached: c, Live: c},
		ClusterCache: clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: "lab", Name: "lab"}, reclaim.NodesWatch),
	}).WithoutWatches()
	o := workers.New(clock.RealClock{}).Options(laneWorkers)
	o.Reconciler, o.RateLimiter, o.SkipNameValidation = r, r.RateLimiter(), new(true)
	ctl, err := controller.NewUnmanaged("reclaim", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctl.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		l.queue = q
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- ctl.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return l
}

// inMemory returns a management cluster, which is also the workload cluster, with these objects.
func inMemory(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Flaky", builder.GenericInfrastructureMachineKind} {
		mapper.Add(builder.InfrastructureGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(builder.BootstrapGroupVersion.WithKind(builder.GenericBootstrapConfigKind), meta.RESTScopeNamespace)
	for kind, scope := range map[string]meta.RESTScope{"Machine": meta.RESTScopeNamespace, "Cluster": meta.RESTScopeNamespace} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), scope)
	}
	mapper.Add(v1alpha1.GroupVersion.WithKind("ScheduledMachine"), meta.RESTScopeNamespace)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	objects = append(objects, testenv.Definition(builder.InfrastructureGroupVersion.WithKind("Flaky")),
		testenv.Definition(builder.InfrastructureGroupVersion.WithKind(builder.GenericInfrastructureMachineKind)),
		testenv.Definition(builder.BootstrapGroupVersion.WithKind(builder.GenericBootstrapConfigKind)))
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).
		WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, index.MachineByNodeName).
		WithIndex(&clusterv1.Machine{}, index.MachineProviderIDField, func(o client.Object) []string {
			return []string{o.(*clusterv1.Machine).Spec.ProviderID}
		}).
		WithObjects(append(objects, testenv.Cluster("lab"))...).Build()
}

// get reads a Flaky object like an informer that never receives a list.
func (l *lane) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if l.readable || obj.GetObjectKind().GroupVersionKind().Kind != "Flaky" {
		return c.Get(ctx, key, obj, opts...)
	}
	return l.hang(ctx)
}

// hang is a call without a response.
func (l *lane) hang(ctx context.Context) error {
	l.mu.Lock()
	l.reads++
	l.most = max(l.most, l.reads)
	l.mu.Unlock()
	begin := time.Now()
	<-ctx.Done()
	l.mu.Lock()
	l.longest = max(l.longest, time.Since(begin))
	l.reads--
	l.mu.Unlock()
	return apierrors.NewTimeoutError("failed waiting for informer to sync", 0)
}

func (l *lane) delete(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	if _, ok := obj.(*clusterv1.Machine); ok {
		l.mu.Lock()
		l.deleted[obj.GetName()] = time.Now()
		l.mu.Unlock()
	}
	if obj.GetObjectKind().GroupVersionKind().Kind == "Flaky" {
		return l.hang(ctx)
	}
	return c.Delete(ctx, obj, opts...)
}

// patch writes a Node like its workload cluster.
func (l *lane) patch(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	l.mu.Lock()
	silent := l.silent
	l.mu.Unlock()
	if _, ok := obj.(*corev1.Node); ok && silent {
		return l.hang(ctx)
	}
	return c.Patch(ctx, obj, p, opts...)
}

// wake enqueues objects.
func (l *lane) wake(names ...string) {
	for _, name := range names {
		l.queue.Add(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "lab", Name: name}})
	}
}

// family returns the objects of a running machine with an infrastructure kind.
func family(t *testing.T, name, kind string, annotations map[string]string) []client.Object {
	t.Helper()
	sm := testenv.ScheduledMachine("lab", name)
	sm.UID, sm.Annotations, sm.Spec.InfrastructureSpec.Kind = "uid-of-sm", annotations, kind
	desired, err := children.Machine(sm, "", time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &clusterv1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, m); err != nil {
		t.Fatal(err)
	}
	m.Finalizers = []string{clusterv1.MachineFinalizer}
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(children.InfrastructureOf(sm).Kind())
	infra.SetNamespace("lab")
	infra.SetName(children.NamesOf(name).Infrastructure)
	infra.SetLabels(m.Labels)
	infra.SetFinalizers([]string{"test/provider"})
	return []client.Object{sm, m, infra}
}

func hasRequest(t *testing.T, annotation string) map[string]string {
	t.Helper()
	return map[string]string{annotation: v1alpha1.PersonsRequest("", "", time.Now()).String()}
}

// TestAFailingProviderDelaysNoOtherOwner covers a failing provider with 120 machines that owners request, and 120
// machines that were given back. Meanwhile owners of other machines request one after the other.
func TestAFailingProviderDelaysNoOtherOwner(t *testing.T) {
	for name, readable := range map[string]bool{"Unreadable": false, "Undeletable": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { checkLane(t, readable) }) })
	}
}

func checkLane(t *testing.T, readable bool) {
	t.Helper()
	var objects []client.Object
	var bad, good []string
	for i := range 120 {
		wanted, back := fmt.Sprintf("wanted%d", i), fmt.Sprintf("back%d", i)
		bad = append(bad, wanted, back)
		objects = append(objects, family(t, wanted, "Flaky", hasRequest(t, v1alpha1.EmergencyReclaimAnnotation))...)
		given := family(t, back, "Flaky", hasRequest(t, v1alpha1.ReclaimedAnnotation))
		given[0].(*v1alpha1.ScheduledMachine).Spec.Schedule.Enabled = new(false)
		objects = append(objects, given[0])
	}
	for i := range 17 { // Until the first calls to the provider have failed.
		good = append(good, fmt.Sprintf("good%d", i))
		objects = append(objects, family(t, good[i], builder.GenericInfrastructureMachineKind, hasRequest(t, v1alpha1.EmergencyReclaimAnnotation))...)
	}
	l := newLane(t, readable, objects...)
	begin := time.Now()
	l.wake(bad...)
	for _, name := range good {
		asked := time.Now()
		l.wake(name)
		synctest.Wait()
		l.mu.Lock()
		at, ok := l.deleted[name+"-machine"]
		l.mu.Unlock()
		if !ok || at.Sub(asked) > 0 {
			t.Fatalf("%s: asked %v after the outage began, and was heard %v later, %t", name, asked.Sub(begin), at.Sub(asked), ok)
		}
		infra := family(t, name, builder.GenericInfrastructureMachineKind, nil)[2]
		if err := l.store.Get(t.Context(), client.ObjectKeyFromObject(infra), infra); err != nil || infra.GetDeletionTimestamp().IsZero() {
			t.Fatalf("%s: its infrastructure waits for others: %v", name, err)
		}
		time.Sleep(777 * time.Millisecond) // The next owner requests at an arbitrary time.
	}
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range bad {
		if at, ok := l.deleted[name+"-machine"]; strings.HasPrefix(name, "wanted") && (!ok || at.Sub(begin) > 0) {
			t.Errorf("%s: the owner waits for the provider, too: %v, %t", name, at.Sub(begin), ok)
		}
	}
	if l.most == 0 || l.most > laneWorkers*3/4 || l.reads > laneWorkers/10 {
		t.Errorf("%d workers waited for the provider at its first failure, and %d do now; want three quarters and a tenth of %d at most", l.most, l.reads, laneWorkers)
	}
}

// TestWhatCannotBeReadIsNotGone covers a request on a Node whose machine's provider fails for an hour.
func TestWhatCannotBeReadIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{}
		node.Name, node.UID = "n1", "uid-of-node"
		request := v1alpha1.ReclaimRecord{Node: node.Name, NodeUID: node.UID, Reason: "process-match: java"}
		box := family(t, "box", "Flaky", map[string]string{v1alpha1.EmergencyReclaimAnnotation: request.String()})
		box[1].(*clusterv1.Machine).Status.NodeRef.Name = node.Name
		l := newLane(t, false, append(box, node)...)
		l.wake("box")
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := l.store.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			t.Errorf("the Node is taken for one that outlives its machine: %v", err)
		}
		if !actuate.Evicting(node) {
			t.Error("its pods wait for the provider")
		}
		sm := testenv.ScheduledMachine("lab", "box")
		if err := l.store.Get(t.Context(), client.ObjectKeyFromObject(sm), sm); err != nil {
			t.Fatal(err)
		}
		if !sm.ScheduleEnabled() || !sm.BeingReclaimed() {
			t.Error("the reclaim ends although the Machine is there")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.deleted) != 1 {
			t.Errorf("deleted: %v", l.deleted)
		}
		if l.longest == 0 || l.longest > 5*time.Second {
			t.Errorf("a look at a provider took %v, want 5s at most", l.longest)
		}
	})
}

// TestANodeThatNeverAnswersHoldsNoWorker covers a workload cluster that accepts the taint of a Node and never responds.
// The owner is served, and the worker is free after two seconds. The steps for the Node continue when the cluster
// responds.
func TestANodeThatNeverAnswersHoldsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{}
		node.Name, node.UID = "n1", "uid-of-node"
		request := v1alpha1.ReclaimRecord{Node: node.Name, NodeUID: node.UID, Reason: "process-match: java"}
		box := family(t, "box", builder.GenericInfrastructureMachineKind, map[string]string{v1alpha1.EmergencyReclaimAnnotation: request.String()})
		box[1].(*clusterv1.Machine).Status.NodeRef.Name = node.Name
		l := newLane(t, true, append(box, node)...)
		l.silent = true
		begin := time.Now()
		l.wake("box")
		synctest.Wait()
		l.wake("box") // Its Machine has changed.
		time.Sleep(time.Minute)
		synctest.Wait()
		l.mu.Lock()
		if at, ok := l.deleted["box-machine"]; !ok || at.Sub(begin) > 0 {
			t.Errorf("the owner waits for the Node: %v, %t", at.Sub(begin), ok)
		}
		if l.longest == 0 || l.longest > 2*time.Second {
			t.Errorf("a write to a Node took %v, want 2s at most", l.longest)
		}
		l.silent = false
		l.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if err := l.store.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || !actuate.Evicting(node) {
			t.Errorf("its pods stay: %v, taints %v", err, node.Spec.Taints)
		}
	})
}
