// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	planner "github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// monday is a Monday, one second before nine in the morning.
var monday = time.Date(2025, time.January, 20, 8, 59, 59, 0, time.UTC)

// world is one ScheduledMachine in its own namespace, with a fake clock. Only the reconciler under test runs. The test
// plays the part of Cluster API.
type world struct {
	*testenv.Fixture
	clock    *clocktesting.FakePassiveClock
	r        *scheduledmachine.Reconciler
	recorder *events.FakeRecorder
	sm       *v1alpha1.ScheduledMachine
	cluster  *clusterv1.Cluster
	// planned reports that the test runs the planner. Otherwise every request is admitted at once, by planner.
	planned bool
	planner *planner.Reconciler
}

func noWatch(client.Object) error { return nil }

// newWorld creates a Cluster and a ScheduledMachine for mon-fri 9-17, changed by change.
func newWorld(t *testing.T, change func(*v1alpha1.ScheduledMachine)) *world {
	t.Helper()
	ns := server.Namespace(t)
	w := &world{Fixture: server.Fixture(t), clock: clocktesting.NewFakePassiveClock(monday), recorder: events.NewFakeRecorder(100)}
	w.cluster, w.sm = testenv.Cluster(ns), testenv.ScheduledMachine(ns, "box")
	w.sm.Spec.Schedule = v1alpha1.Schedule{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}}
	if change != nil {
		change(w.sm)
	}
	w.Create(w.cluster, w.sm)
	w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
	return w
}

// reconciler returns a Reconciler that writes with c.
func (w *world) reconciler(c client.Client) *scheduledmachine.Reconciler {
	return &scheduledmachine.Reconciler{
		Clock: w.clock, Reader: w.Indexed(c, scheduledmachine.HostIndex, scheduledmachine.HostKeys), Live: c, Actuate: actuate.New(c), Recorder: w.recorder, Watch: noWatch, ReclaimTracker: &wake.ReclaimTracker{},
		Children:     children.Reader{Cached: c, Live: c},
		ClusterCache: clustercache.NewFakeClusterCache(c, client.ObjectKeyFromObject(w.cluster)),
		Backoff:      workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](time.Second, 5*time.Minute),
	}
}

// reconcile runs one reconcile and reads the ScheduledMachine again. If the machine requests its departure, it is
// admitted, and reconciled once more.
func (w *world) reconcile() ctrl.Result {
	w.Helper()
	res, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
	w.Must(err)
	if w.admit() {
		res, err = w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
		w.Must(err)
	}
	w.Read(w.sm)
	return res
}

// admit runs a planner without limits while the machine requests its departure. It reports whether there was a request.
func (w *world) admit() (requested bool) {
	w.Helper()
	for range 30 {
		m, ok := w.machine()
		d, recorded := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
		if w.planned || !ok || !m.DeletionTimestamp.IsZero() || !recorded || d.MachineUID != m.UID || d.Lane == v1alpha1.ExemptLane {
			return requested
		}
		requested = true
		if w.planner == nil {
			w.planner = &planner.Reconciler{
				Clock: w.clock, Reader: w.Indexed(w.Client, wake.ClusterIndex, clusterNames), Live: w.Client,
				Recorder: w.recorder,
			}
		}
		w.planner.Actuate = w.r.Actuate
		res, err := w.planner.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.cluster)})
		w.Must(err)
		if m, ok := w.machine(); !ok || !m.DeletionTimestamp.IsZero() || res.RequeueAfter == 0 {
			return true
		}
		w.clock.SetTime(w.clock.Now().Add(res.RequeueAfter))
	}
	return requested
}

func clusterNames(o client.Object) []string {
	return []string{o.(*v1alpha1.ScheduledMachine).Spec.ClusterName}
}

// settle reconciles until nothing is left to do now, and returns when to reconcile again. A changed Machine triggers a
// reconcile, like its watch.
func (w *world) settle() time.Duration {
	w.Helper()
	for range 10 {
		before, _ := w.machine()
		res := w.reconcile()
		after, _ := w.machine()
		woken := before.ResourceVersion != after.ResourceVersion
		if !woken && (res.RequeueAfter == 0 || res.RequeueAfter > 100*time.Millisecond) {
			return res.RequeueAfter
		}
		if !woken && res.RequeueAfter >= wake.QuietRetry && res.RequeueAfter < 2*wake.QuietRetry { // It waits for the cache.
			w.clock.SetTime(w.clock.Now().Add(res.RequeueAfter))
		}
	}
	w.Fatal("does not settle")
	return 0
}

func (w *world) machine() (*clusterv1.Machine, bool) {
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = w.sm.Namespace, w.sm.Name+"-machine"
	return m, w.Read(m)
}

func (w *world) child(o v1alpha1.EmbeddedObject, name string) (*unstructured.Unstructured, bool) {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(o.APIVersion)
	u.SetKind(o.Kind)
	u.SetNamespace(w.sm.Namespace)
	u.SetName(name)
	return u, w.Read(u)
}

func (w *world) bootstrap() (*unstructured.Unstructured, bool) {
	return w.child(w.sm.Spec.BootstrapSpec, w.sm.Name+"-bootstrap")
}

func (w *world) infra() (*unstructured.Unstructured, bool) {
	return w.child(w.sm.Spec.InfrastructureSpec, w.sm.Name+"-infra")
}

// hold adds a finalizer to an object, like Cluster API and providers. letGo removes it.
func (w *world) hold(obj client.Object) {
	w.Helper()
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(append(obj.GetFinalizers(), "test/hold"))
	w.Must(w.Client.Patch(w.Context(), obj, client.MergeFrom(before)))
}

func (w *world) letGo(obj client.Object) {
	w.Helper()
	if !w.Read(obj) {
		w.Fatalf("%s is gone already", obj.GetName())
	}
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(nil)
	w.Must(w.Client.Patch(w.Context(), obj, client.MergeFrom(before)))
}

// edit changes the ScheduledMachine like a person.
func (w *world) edit(change func(*v1alpha1.ScheduledMachine)) {
	w.Helper()
	w.Read(w.sm)
	before := w.sm.DeepCopy()
	change(w.sm)
	w.Must(w.Client.Patch(w.Context(), w.sm, client.MergeFrom(before)))
}

// want checks the phase and one condition.
func (w *world) want(phase v1alpha1.Phase, condition string, status metav1.ConditionStatus, reason string) {
	w.Helper()
	c := conditions.Get(w.sm, condition)
	if c == nil {
		w.Fatalf("no condition %s: %+v", condition, w.sm.Status)
	}
	if w.sm.Status.Phase != phase || c.Status != status || c.Reason != reason {
		w.Fatalf("phase %s, %s=%s/%s (%s), want phase %s, %s/%s",
			w.sm.Status.Phase, condition, c.Status, c.Reason, c.Message, phase, status, reason)
	}
}

// running starts the machine, with Cluster API's finalizer on the Machine and a provider's finalizer on the
// infrastructure.
func (w *world) running() {
	w.Helper()
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	m, ok := w.machine()
	if !ok {
		w.Fatalf("no Machine: %+v", w.sm.Status)
	}
	w.hold(m)
	i, _ := w.infra()
	w.hold(i)
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
}

// report sets a condition of the Machine, like Cluster API.
func (w *world) report(m *clusterv1.Machine, condition string, status metav1.ConditionStatus, reason, message string) {
	w.Helper()
	w.Read(m)
	before := m.DeepCopy()
	conditions.Set(m, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: message})
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: w.sm.Name + "-node"}
	w.Must(w.Client.Status().Patch(w.Context(), m, client.MergeFrom(before)))
}

// gone deletes infrastructure, bootstrap config and Machine, like Cluster API at the end of a deletion.
func (w *world) gone() {
	w.Helper()
	if i, ok := w.infra(); ok {
		w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), i)))
		if w.Read(i) {
			w.letGo(i)
		}
	}
	b, ok := w.bootstrap()
	if ok {
		w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), b)))
	}
	m, ok := w.machine()
	if ok {
		w.letGo(m)
	}
}
