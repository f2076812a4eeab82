// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/test/builder"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// world is a running machine whose Node lives in the same API server, and nobody
// but the reconciler under test: Cluster API's part is played by the test.
type world struct {
	*testing.T
	sm       *v1alpha1.ScheduledMachine
	node     *corev1.Node
	recorder *events.FakeRecorder
	writes   []string
	fail     func(n int) (before, after error)
	hooks    actuate.Hooks
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, recorder: events.NewFakeRecorder(20), hooks: actuate.BypassHooks}
	ns := server.Namespace(t)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lab"}}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "lab.test", Port: 6443}
	w.sm = &v1alpha1.ScheduledMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "box"},
		Spec: v1alpha1.ScheduledMachineSpec{
			ClusterName:        "lab",
			Schedule:           v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}},
			BootstrapSpec:      v1alpha1.EmbeddedObject{APIVersion: builder.BootstrapGroupVersion.String(), Kind: builder.GenericBootstrapConfigKind},
			InfrastructureSpec: v1alpha1.EmbeddedObject{APIVersion: builder.InfrastructureGroupVersion.String(), Kind: builder.GenericInfrastructureMachineKind},
		},
	}
	w.create(cluster, w.sm)
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
	bootstrap, err := children.Bootstrap(w.sm)
	w.must(err)
	infra, err := children.Infrastructure(w.sm)
	w.must(err)
	infra.SetFinalizers([]string{"test/provider"})
	desired, err := children.Machine(w.sm, "", nil)
	w.must(err)
	desired.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.create(w.node, bootstrap, infra, desired)
	m := w.machine()
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: w.node.Name}
	w.must(server.Client.Status().Update(t.Context(), m))
	t.Cleanup(func() { _ = server.Client.Delete(context.WithoutCancel(t.Context()), w.node) })
	return w
}

func (w *world) create(objs ...client.Object) {
	w.Helper()
	for _, obj := range objs {
		w.must(server.Client.Create(w.Context(), obj))
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) read(obj client.Object) bool {
	w.Helper()
	err := server.Client.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return err == nil
}

// machine is nil when it is gone.
func (w *world) machine() *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "box-machine"}}
	if !w.read(m) {
		return nil
	}
	return m
}

func (w *world) infra() *unstructured.Unstructured {
	u, err := children.Infrastructure(w.sm)
	w.must(err)
	if !w.read(u) {
		return nil
	}
	return u
}

// ask annotates the Node as the agent does.
func (w *world) ask(value string) {
	w.Helper()
	before := w.node.DeepCopy()
	w.node.Annotations = map[string]string{
		reclaimapi.RequestedAnnotation: value, reclaimapi.ReasonAnnotation: "process-match: java",
		reclaimapi.RequestedAtAnnotation: "2026-04-20T21:45:00Z",
	}
	w.must(server.Client.Patch(w.Context(), w.node, client.MergeFrom(before), client.FieldOwner(reclaimapi.FieldManager)))
}

// gone plays Cluster API's end of the Machine.
func (w *world) gone() {
	w.Helper()
	for _, obj := range []client.Object{w.infra(), w.machine()} {
		before := obj.DeepCopyObject().(client.Object)
		obj.SetFinalizers(nil)
		w.must(server.Client.Patch(w.Context(), obj, client.MergeFrom(before)))
	}
}

// settle reconciles, each time with a new reconciler, until nothing is written.
func (w *world) settle() {
	w.Helper()
	for range 15 {
		n := len(w.writes)
		c := w.client()
		r := (&reclaim.Reconciler{
			Clock: clock.RealClock{}, Reader: c, Actuate: actuate.New(c), Recorder: w.recorder, Hooks: w.hooks,
			Children:     children.Reader{Cached: c, Live: c, Mapper: c.RESTMapper()},
			ClusterCache: clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}),
		}).WithoutWatches()
		_, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
		if err == nil && len(w.writes) == n {
			w.read(w.sm)
			return
		}
	}
	w.Fatal("does not settle")
}

// client tells its writes, and fails when told to.
func (w *world) client() client.Client {
	do := func(verb string, obj client.Object, write func() error) error {
		n := len(w.writes)
		w.writes = append(w.writes, fmt.Sprintf("%s %T", verb, obj))
		var before, after error
		if w.fail != nil {
			before, after = w.fail(n)
		}
		if before != nil {
			return before
		}
		return errors.Join(write(), after)
	}
	return interceptor.NewClient(server.Client, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return do("patch", obj, func() error { return c.Patch(ctx, obj, p, opts...) })
		},
	})
}

func TestTheOwnerAsks(t *testing.T) {
	w := newWorld(t)
	w.settle()
	if len(w.writes) != 0 {
		t.Fatalf("nobody asked: %v", w.writes)
	}
	w.ask("true")
	w.settle()
	want := []string{"patch *v1alpha1.ScheduledMachine", "patch *v1beta2.Machine", "delete *v1beta2.Machine", "delete *unstructured.Unstructured"}
	if diff := cmp.Diff(want, w.writes); diff != "" {
		t.Fatalf("writes until everything is on its way: -want, +got:\n%s", diff)
	}
	m := w.machine()
	for _, key := range []string{clusterv1.ExcludeNodeDrainingAnnotation, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, clusterv1.MachineSkipRemediationAnnotation} {
		if _, ok := m.Annotations[key]; !ok {
			t.Errorf("Machine lacks %s", key)
		}
	}
	if m.DeletionTimestamp.IsZero() || w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("not everything is being deleted")
	}
	if !w.sm.ScheduleEnabled() {
		t.Error("the schedule went off before the machine was gone")
	}
	w.writes = nil
	w.gone()
	w.settle()
	if diff := cmp.Diff([]string{"patch *v1alpha1.ScheduledMachine", "patch *v1.Node"}, w.writes); diff != "" {
		t.Errorf("the schedule goes off first, the Node is cleared last: -want, +got:\n%s", diff)
	}
	if w.sm.ScheduleEnabled() {
		t.Error("the schedule is still on")
	}
	if _, ok := w.sm.Annotations[v1alpha1.EmergencyReclaimAnnotation]; ok {
		t.Error("the request is not forgotten")
	}
	if w.read(w.node); len(w.node.Annotations) != 0 {
		t.Errorf("the Node is not cleared: %v", w.node.Annotations)
	}
	var notes []string
	for len(w.recorder.Events) > 0 {
		notes = append(notes, <-w.recorder.Events)
	}
	for i, want := range []string{
		"Warning EmergencyReclaim Emergency reclaim requested (2026-04-20T21:45:00Z): process-match: java",
		"Warning EmergencyReclaimDisabledSchedule Schedule turned off by emergency reclaim (process-match: java)",
	} {
		if i >= len(notes) || !strings.HasPrefix(notes[i], want) {
			t.Errorf("events %q, want %q", notes, want)
		}
	}
}

// askAsPerson writes the request where a person does, and no Node asks.
func (w *world) askAsPerson() {
	w.Helper()
	before := w.sm.DeepCopy()
	w.sm.Annotations = map[string]string{
		v1alpha1.EmergencyReclaimAnnotation: v1alpha1.PersonsRequest(w.node.Name, "Ada needs it", clock.RealClock{}.Now()).String(),
	}
	w.must(server.Client.Patch(w.Context(), w.sm, client.MergeFrom(before)))
}

func TestAPersonAsks(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	w.settle()
	want := []string{"patch *v1beta2.Machine", "delete *v1beta2.Machine", "delete *unstructured.Unstructured"}
	if diff := cmp.Diff(want, w.writes); diff != "" {
		t.Fatalf("writes until everything is on its way: -want, +got:\n%s", diff)
	}
	if got := len(w.recorder.Events); got != 1 {
		t.Fatalf("%d events, want the one that says who asked", got)
	}
	if got := <-w.recorder.Events; !strings.HasPrefix(got, "Warning EmergencyReclaim ") || !strings.HasSuffix(got, "asked by a person: Ada needs it") {
		t.Errorf("event %q", got)
	}
	w.writes = nil
	w.gone()
	w.settle()
	if diff := cmp.Diff([]string{"patch *v1alpha1.ScheduledMachine"}, w.writes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if w.sm.ScheduleEnabled() || v1alpha1.ParseReclaimRecord(w.sm.Annotations[v1alpha1.ReclaimedAnnotation]).Reason != "asked by a person: Ada needs it" {
		t.Errorf("the schedule must be off, and say why: %v", w.sm.Annotations)
	}
}

func TestAPersonAsksWhileTheNodeAsks(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	w.ask("true")
	w.settle()
	w.gone()
	w.settle()
	if w.sm.ScheduleEnabled() || w.machine() != nil {
		t.Error("the machine is not given back")
	}
	n := len(w.writes)
	w.settle()
	if len(w.writes) != n {
		t.Errorf("it does not rest: %v", w.writes[n:])
	}
}

// TestAMachineMadeWhileAPersonAskedGoes plays a controller that made the Machine
// from an object that was not yet given back.
func TestAMachineMadeWhileAPersonAskedGoes(t *testing.T) {
	w := newWorld(t)
	before := w.sm.DeepCopy()
	w.sm.Spec.Schedule.Enabled = new(false)
	w.sm.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: v1alpha1.PersonsRequest("", "", clock.RealClock{}.Now()).String()}
	w.must(server.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.settle()
	if w.machine().DeletionTimestamp.IsZero() || w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("the owner's machine stays in the cluster")
	}
	w.gone()
	n := len(w.writes)
	w.settle()
	if len(w.writes) != n {
		t.Errorf("there is nothing left to do: %v", w.writes[n:])
	}
}

// TestAPersonAsksBeforeTheMachineIsMade leaves infrastructure without a Machine.
func TestAPersonAsksBeforeTheMachineIsMade(t *testing.T) {
	w := newWorld(t)
	m := w.machine()
	m.SetFinalizers(nil)
	w.must(server.Client.Update(t.Context(), m))
	w.must(server.Client.Delete(t.Context(), m))
	w.askAsPerson()
	w.settle()
	if w.sm.ScheduleEnabled() {
		t.Error("the schedule is still on, and the Machine would be made")
	}
	if w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("what was made of the owner's machine stays")
	}
}

func TestAMachineOfAScheduleThatIsOffStays(t *testing.T) {
	w := newWorld(t)
	before := w.sm.DeepCopy()
	w.sm.Spec.Schedule.Enabled = new(false)
	w.must(server.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.settle()
	if len(w.writes) != 0 {
		t.Errorf("nobody asked for it: %v", w.writes)
	}
}

func TestOnlyTheLiteralTrueAsks(t *testing.T) {
	w := newWorld(t)
	for _, value := range []string{"false", "0", "", "True", "1", "yes", " true", "true "} {
		w.ask(value)
		w.settle()
		if len(w.writes) != 0 {
			t.Fatalf("%q: %v", value, w.writes)
		}
	}
}

func TestTheOwnerAsksInTheMiddleOfADrain(t *testing.T) {
	w := newWorld(t)
	w.must(server.Client.Delete(t.Context(), w.machine()))
	w.ask("true")
	w.settle()
	if _, ok := w.machine().Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !ok {
		t.Error("the drain goes on")
	}
	if w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("the infrastructure waits for the drain")
	}
}

func TestHooksOfOthers(t *testing.T) {
	const hook = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup"
	for name, tc := range map[string]struct {
		reason string
		hooks  actuate.Hooks
		waits  bool
	}{
		"Bypassed": {"The Machine object waits, the owner does not.", actuate.BypassHooks, false},
		"Honoured": {"Somebody decided that their hooks come first.", actuate.HonourHooks, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.hooks = tc.hooks
			w.hook(hook, true)
			w.ask("true")
			w.settle()
			if w.machine().DeletionTimestamp.IsZero() {
				t.Error("the Machine is not being deleted")
			}
			if waits := w.infra().GetDeletionTimestamp().IsZero(); waits != tc.waits {
				t.Errorf("%s\nthe infrastructure waits: %t, want %t", tc.reason, waits, tc.waits)
			}
			w.hook(hook, false)
			w.settle()
			if w.infra().GetDeletionTimestamp().IsZero() {
				t.Error("the infrastructure waits for a hook that is gone")
			}
		})
	}
}

// hook puts somebody else's deletion hook on the Machine, or takes it off.
func (w *world) hook(key string, on bool) {
	w.Helper()
	m := w.machine()
	before := m.DeepCopy()
	delete(m.Annotations, key)
	if on {
		m.Annotations[key] = "somebody"
	}
	w.must(server.Client.Patch(w.Context(), m, client.MergeFrom(before)))
}

func TestPausedDoesNothing(t *testing.T) {
	w := newWorld(t)
	before := w.sm.DeepCopy()
	w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	w.must(server.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.ask("true")
	w.settle()
	if len(w.writes) != 0 {
		t.Errorf("%v", w.writes)
	}
}

// TestCrashPoints stops the controller before each of its writes, and after each
// with the reply lost, and starts it anew. Every run ends as the one without.
func TestCrashPoints(t *testing.T) {
	want, writes := story(t, nil)
	if writes != 6 {
		t.Fatalf("%d writes in a reclaim, want 6", writes)
	}
	lost := errors.New("reply lost")
	for n := range writes {
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%d-%s", n, when), func(t *testing.T) {
				got, _ := story(t, func(i int) (before, after error) {
					switch {
					case i != n:
						return nil, nil
					case when == "before":
						return lost, nil
					default:
						return nil, lost
					}
				})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-without a crash, +with one:\n%s", diff)
				}
			})
		}
	}
}

// story is a whole reclaim, told at two stations.
func story(t *testing.T, fail func(int) (error, error)) (stations []string, writes int) {
	t.Helper()
	w := newWorld(t)
	w.fail = fail
	tell := func() {
		w.read(w.node)
		m, i := w.machine(), w.infra()
		stations = append(stations, fmt.Sprintf("enabled=%t annotations=%v machine=%t infra=%t asked=%t", w.sm.ScheduleEnabled(),
			strings.ReplaceAll(fmt.Sprint(w.sm.Annotations), string(w.node.UID), "UID"),
			m != nil && m.DeletionTimestamp.IsZero(), i != nil && i.GetDeletionTimestamp().IsZero(), reclaimapi.Requested(w.node.Annotations)))
		stations[len(stations)-1] = strings.ReplaceAll(stations[len(stations)-1], w.node.Name, "NODE")
	}
	w.ask("true")
	w.settle()
	tell()
	w.gone()
	w.settle()
	tell()
	return stations, len(w.writes)
}
