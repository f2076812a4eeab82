// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

const (
	// slowExtensions is the number of extensions that are called for the machines of team. Each responds after
	// slowly. With sequential calls for 110 machines, a hundred workers were blocked for 280 s.
	slowExtensions = 10
	slowly         = 28 * time.Second
	// aWrite is the duration of a write to the API server.
	aWrite = 5 * time.Millisecond
)

// crowd runs the controller on an in-memory API server with fake time. Every write enqueues the Machine, as a
// watch does.
type crowd struct {
	*testing.T
	client client.Client
	r      *HookReconciler
	queue  workqueue.TypedRateLimitingInterface[ctrl.Request]

	mu sync.Mutex
	// calls is the number of open calls. heard has all calls.
	calls int
	heard []string
}

func inCrowd(t *testing.T, test func(*crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		c := &crowd{T: t}
		slow := func(obj client.Object, write func() error) error {
			<-time.After(aWrite)
			defer c.queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
			return write()
		}
		c.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.Machine{}).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
				return slow(obj, func() error { return w.Patch(ctx, obj, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				return slow(obj, func() error { return w.SubResource(sub).Patch(ctx, obj, p, opts...) })
			},
		}).Build()
		wall := clock.RealClock{}
		c.r = &HookReconciler{
			Clock: wall, Reader: c.client, Live: c.client, Actuate: actuate.New(c.client),
			Recorder: &events.FakeRecorder{}, Extensions: c, HookCaller: leaving.New(wall),
		}
		runs, err := controller.NewUnmanaged("machinehook", controller.Options{Reconciler: c.r, MaxConcurrentReconciles: 100, SkipNameValidation: new(true)})
		if err != nil {
			t.Fatal(err)
		}
		started := make(chan struct{})
		if err := runs.Watch(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			defer close(started)
			c.queue = q
			return c.r.HookCaller.Woken().Start(ctx, q)
		})); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := runs.Start(ctx); err != nil {
				t.Errorf("running controller: %v", err)
			}
		})
		<-started
		test(c)
		stop()
		ended.Wait()
		synctest.Wait()
	})
}

// Call responds after slowly, except to the notification of an owner's request.
func (c *crowd) Call(ctx context.Context, h *v1alpha1.MachineDeletionHook, req *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error) {
	c.mu.Lock()
	c.calls++
	c.heard = append(c.heard, fmt.Sprintf("%s of %s: %s", h.Name, req.Machine.Name, req.Trigger))
	c.mu.Unlock()
	defer func() { c.mu.Lock(); defer c.mu.Unlock(); c.calls-- }()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(slowly):
		return &hooksv1.BeforeMachineDeleteResponse{}, nil
	}
}

// Forget implements Extensions.
func (c *crowd) Forget(types.UID) {}

// under returns the number of open calls, and the number of all calls of a kind.
func (c *crowd) under(kind string) (calls, made int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.heard {
		if strings.Contains(h, kind) {
			made++
		}
	}
	return c.calls, made
}

func (c *crowd) create(objs ...client.Object) {
	c.Helper()
	for _, obj := range objs {
		obj.SetUID(types.UID(fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())))
		if err := c.client.Create(c.Context(), obj); err != nil {
			c.Fatal(err)
		}
	}
}

// namespace creates a Cluster in a namespace.
func (c *crowd) namespace(name string) {
	c.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "lab"}}
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}, cluster)
}

// extensions registers the slow extensions for the namespace team.
func (c *crowd) extensions() (all []*v1alpha1.MachineDeletionHook) {
	c.Helper()
	for i := range slowExtensions {
		h := &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slow-", i)}}
		h.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "team"}}
		h.Spec.TimeoutSeconds, h.Spec.DeadlineSeconds, h.Spec.FailurePolicy = 30, 300, v1alpha1.FailurePolicyIgnore
		c.create(h)
		all = append(all, h)
	}
	return all
}

// leave creates a Machine with a Node and our two hooks, and deletes it.
func (c *crowd) leave(namespace, name string) *clusterv1.Machine {
	c.Helper()
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Finalizers: []string{clusterv1.MachineFinalizer},
		Labels:      map[string]string{v1alpha1.ScheduledMachineLabel: name, clusterv1.ClusterNameLabel: "lab"},
		Annotations: map[string]string{v1alpha1.PreDrainHookAnnotation: "", v1alpha1.PreTerminateHookAnnotation: ""},
	}}
	m.Spec.ClusterName = "lab"
	c.create(sm, m)
	m.Status.NodeRef.Name = name
	if err := c.client.Status().Update(c.Context(), m); err != nil {
		c.Fatal(err)
	}
	if err := c.client.Delete(c.Context(), m); err != nil {
		c.Fatal(err)
	}
	c.queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	return m
}

// held returns how many of our hooks a Machine has.
func (c *crowd) held(m *clusterv1.Machine) (hooks int) {
	c.Helper()
	if err := c.client.Get(c.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		c.Fatal(err)
	}
	for _, key := range []string{v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation} {
		if _, on := m.Annotations[key]; on {
			hooks++
		}
	}
	return hooks
}

// released waits until a Machine has no hook of ours, and returns how long that took.
func (c *crowd) released(m *clusterv1.Machine) time.Duration {
	c.Helper()
	begin := time.Now()
	for c.held(m) > 0 {
		if time.Since(begin) > time.Hour {
			c.Fatalf("%s is held for an hour", m.Name)
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
	}
	return time.Since(begin)
}

// owner requests a machine: it writes the request to the ScheduledMachine as package reclaim does. The next
// event of the Machine reads it there.
func (c *crowd) owner(m *clusterv1.Machine) {
	c.Helper()
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.EmergencyReclaimAnnotation+`":"{}"}}}`))
	if err := c.client.Patch(c.Context(), sm, patch); err != nil {
		c.Fatal(err)
	}
}

// TestSlowExtensionsDelayNoOtherMachine checks that 110 machines which wait for slow extensions delay neither
// machines without extensions nor a machine whose owner requests it.
func TestSlowExtensionsDelayNoOtherMachine(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.namespace("team")
		c.namespace("other")
		c.extensions()
		measure := func(name string) (drain, emergency time.Duration) {
			drain = c.released(c.leave("other", name))
			wanted := c.leave("team", name)
			<-time.After(time.Second) // It waits, too.
			c.owner(wanted)
			emergency = c.released(wanted)
			return drain, emergency
		}
		quietDrain, quietEmergency := measure("quiet")
		for i := range 110 {
			c.leave("team", fmt.Sprint("m", i))
		}
		<-time.After(9400 * time.Millisecond)
		if calls, _ := c.under(""); calls != slowExtensions*leaving.MaxConcurrentCalls {
			t.Errorf("%d calls under way, want %d for each extension", calls, leaving.MaxConcurrentCalls)
		}
		drain, emergency := measure("busy")
		t.Logf("drain begins after %v, quiet %v; the owner waits %v, quiet %v", drain, quietDrain, emergency, quietEmergency)
		if drain > quietDrain*12/10 || emergency > quietEmergency*12/10 || drain <= 0 || emergency <= 0 {
			t.Errorf("drain begins after %v, quiet %v; the owner waits %v, quiet %v", drain, quietDrain, emergency, quietEmergency)
		}
	})
}

// TestDeletedExtensionsReleaseAtOnce deletes the extensions during their calls.
func TestDeletedExtensionsReleaseAtOnce(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.namespace("team")
		hooks := c.extensions()
		var machines []*clusterv1.Machine
		for i := range 110 {
			machines = append(machines, c.leave("team", fmt.Sprint("m", i)))
		}
		c.owner(machines[0]) // The notification of the extensions delays no machine.
		<-time.After(10 * time.Second)
		for _, h := range hooks {
			if err := c.client.Delete(c.Context(), h); err != nil {
				t.Fatal(err)
			}
			if !c.r.extensionChanges().Delete(event.DeleteEvent{Object: h}) {
				t.Fatal("the deletion of an extension enqueues no Machine")
			}
			for _, req := range c.r.all(c.Context(), h) {
				c.queue.Add(req)
			}
		}
		<-time.After(time.Second)
		if calls, _ := c.under(""); calls != 0 {
			t.Errorf("%d calls to deleted extensions are open", calls)
		}
		for _, m := range machines {
			if got := c.held(m); got != 0 {
				t.Fatalf("%s is held by %d hooks a second after the extensions went", m.Name, got)
			}
		}
	})
}

// TestAnOwnersRequestIsNotifiedOnce checks that every extension gets one notification of an owner's request, also
// during another call.
func TestAnOwnersRequestIsNotifiedOnce(t *testing.T) {
	inCrowd(t, func(c *crowd) {
		c.namespace("team")
		c.extensions()
		m := c.leave("team", "box")
		<-time.After(time.Second)
		c.owner(m)
		c.released(m)
		<-time.After(time.Second)
		if calls, made := c.under("EmergencyReclaim"); calls != slowExtensions || made != slowExtensions {
			t.Errorf("%d calls are open and %d extensions notified; want %d notified, and no other call", calls, made, slowExtensions)
		}
		for range 5 {
			c.queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
			<-time.After(slowly)
		}
		if calls, made := c.under("EmergencyReclaim"); calls != 0 || made != slowExtensions {
			t.Errorf("%d calls under way, %d made, want each extension told once", calls, made)
		}
	})
}

// TestWhichManagerServesAMachine checks which of several shards serves a Machine.
func TestWhichManagerServesAMachine(t *testing.T) {
	label := func(value string) map[string]string {
		if value == "" {
			return nil
		}
		return map[string]string{clusterv1.WatchLabel: value}
	}
	for name, tc := range map[string]struct {
		reason                      string
		scheduled, machine, cluster string
		orphan                      bool
		a, b, unfiltered            bool
	}{
		"Scheduled":      {reason: "Its ScheduledMachine says so.", scheduled: "a", machine: "b", cluster: "b", a: true, unfiltered: true},
		"Machine":        {reason: "A ScheduledMachine that is gone says nothing.", orphan: true, machine: "a", cluster: "b", a: true, unfiltered: true},
		"Cluster":        {reason: "Shards go by Clusters.", orphan: true, cluster: "b", b: true, unfiltered: true},
		"NoLabel":        {reason: "Without a manager, its deletion would hang for ever.", orphan: true, a: true, b: true, unfiltered: true},
		"Unlabelled":     {reason: "A label that was taken off holds nothing.", a: true, b: true, unfiltered: true},
		"AnotherManager": {reason: "A person has to remove the label of a manager that does not run.", orphan: true, machine: "c", unfiltered: true},
	} {
		s := &scope{machine: &clusterv1.Machine{}, cluster: &clusterv1.Cluster{}}
		s.machine.Labels, s.cluster.Labels = label(tc.machine), label(tc.cluster)
		if !tc.orphan {
			s.scheduled = &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Labels: label(tc.scheduled)}}
		}
		for filter, want := range map[string]bool{"a": tc.a, "b": tc.b, "": tc.unfiltered} {
			if got := s.servedBy(filter); got != want {
				t.Errorf("%s: manager %q serves it: %v, want %v: %s", name, filter, got, want, tc.reason)
			}
		}
		s.cluster = nil
		s.servedBy("a")
	}
}
