// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// world is a running machine whose Node is in the same API server. Only the reconciler under test runs. The test plays
// the part of Cluster API.
type world struct {
	*testenv.Fixture
	sm       *v1alpha1.ScheduledMachine
	node     *corev1.Node
	recorder *events.FakeRecorder
	hooks    children.ForeignHookPolicy
	clock    *clocktesting.FakePassiveClock
	tracker  *wake.ReclaimTracker
	// disconnected means that the workload cluster is not connected.
	disconnected bool
	r            *reclaim.Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Fixture: server.Fixture(t), recorder: events.NewFakeRecorder(20), hooks: children.BypassHooks, clock: clocktesting.NewFakePassiveClock(noon), tracker: &wake.ReclaimTracker{}}
	ns := server.Namespace(t)
	w.sm = testenv.ScheduledMachine(ns, "box")
	w.Create(testenv.Cluster(ns), w.sm)
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
	bootstrap, infra := w.built(children.BootstrapOf(w.sm)), w.built(children.InfrastructureOf(w.sm))
	infra.SetFinalizers([]string{"test/provider"})
	desired, err := children.Machine(w.sm, "", time.Now(), nil)
	w.Must(err)
	desired.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.Create(w.node, bootstrap, infra, desired)
	m := w.machine()
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: w.node.Name}
	w.Must(w.Client.Status().Update(t.Context(), m))
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), w.node) })
	return w
}

// built returns a child like the controller creates it.
func (w *world) built(p children.Part) *unstructured.Unstructured {
	w.Helper()
	u, err := children.Reader{Cached: w.Client, Live: w.Client}.Desired(w.Context(), &children.Set{}, p)
	w.Must(err)
	return u
}

// machine returns the Machine, nil if it is gone.
func (w *world) machine() *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "box-machine"}}
	if !w.Read(m) {
		return nil
	}
	return m
}

func (w *world) infra() *unstructured.Unstructured {
	u := w.built(children.InfrastructureOf(w.sm))
	if !w.Read(u) {
		return nil
	}
	return u
}

// annotate sets the request on the Node, as the agent does.
func (w *world) annotate(value string) {
	w.Helper()
	before := w.node.DeepCopy()
	w.node.Annotations = map[string]string{
		reclaimapi.RequestedAnnotation: value, reclaimapi.ReasonAnnotation: "process-match: java",
		reclaimapi.RequestedAtAnnotation: "2026-04-20T21:45:00Z",
	}
	w.Must(w.Client.Patch(w.Context(), w.node, client.MergeFrom(before), client.FieldOwner(reclaimapi.FieldManager)))
}

// gone ends the deletion of the Machine like Cluster API.
func (w *world) gone() {
	w.Helper()
	w.release(w.infra())
	w.release(w.machine())
}

func (w *world) release(obj client.Object) {
	w.Helper()
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(nil)
	w.Must(w.Client.Patch(w.Context(), obj, client.MergeFrom(before)))
}

// settle reconciles, each time with a new reconciler, until no writes follow.
func (w *world) settle() {
	w.Helper()
	w.until(func() { w.r = nil })
}

// resync is settle with a single reconciler.
func (w *world) resync() {
	w.Helper()
	w.until(func() {})
}

func (w *world) until(before func()) {
	w.Helper()
	for range 15 {
		n := len(w.Writes)
		before()
		if _, err := w.reconcile(); err == nil && len(w.Writes) == n {
			w.Read(w.sm)
			return
		}
	}
	w.Fatal("does not settle")
}

func (w *world) reconcile() (ctrl.Result, error) {
	if w.r == nil {
		w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
	}
	return w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
}

func (w *world) reconciler(c client.Client) *reclaim.Reconciler {
	clusters := clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, reclaim.NodesWatch)
	if w.disconnected {
		clusters = clustercache.NewFakeEmptyClusterCache()
	}
	return (&reclaim.Reconciler{
		Clock: w.clock, Reader: c, Actuate: actuate.New(c), Recorder: w.recorder, Hooks: w.hooks, ReclaimTracker: w.tracker,
		Children:     children.Reader{Cached: c, Live: c},
		ClusterCache: clusters,
	}).WithoutWatches()
}

func TestTheOwnerAsks(t *testing.T) {
	w := newWorld(t)
	w.settle()
	if len(w.Writes) != 0 {
		t.Fatalf("writes without a request: %v", w.Writes)
	}
	w.annotate("true")
	w.settle()
	want := []string{"patch ScheduledMachine", "patch Machine", "delete Machine", "delete GenericInfrastructureMachine", "patch Node"}
	if diff := cmp.Diff(want, w.Writes); diff != "" {
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
	w.Writes = nil
	w.gone()
	w.settle()
	if diff := cmp.Diff([]string{"patch ScheduledMachine", "delete Node"}, w.Writes); diff != "" {
		t.Errorf("the schedule goes off first, the Node goes last: -want, +got:\n%s", diff)
	}
	if w.sm.ScheduleEnabled() {
		t.Error("the schedule is still on")
	}
	if _, ok := w.sm.Annotations[v1alpha1.EmergencyReclaimAnnotation]; ok {
		t.Error("the request is not forgotten")
	}
	if w.Read(w.node) {
		t.Errorf("the Node outlives its machine: %v", w.node)
	}
	notes := w.events()
	for i, want := range []string{
		"Warning EmergencyReclaim Emergency reclaim requested (2026-04-20T21:45:00Z): process-match: java",
		"Warning EmergencyReclaimDisabledSchedule Schedule turned off by emergency reclaim (process-match: java), so that the machine does not come back " +
			"while its owner uses it. To lend it again: kubectl 5spot -n " + w.sm.Namespace + " resume " + w.sm.Name + ", or set spec.schedule.enabled to true",
	} {
		if i >= len(notes) || !strings.HasPrefix(notes[i], want) {
			t.Errorf("events %q, want %q", notes, want)
		}
	}
}

// TestTheWayOutIsTheRightOne checks the Event and the record after the machine was returned.
func TestTheWayOutIsTheRightOne(t *testing.T) {
	for policy, way := range map[v1alpha1.ResumePolicy]string{
		v1alpha1.ResumeOnEnable: ", or set spec.schedule.enabled to true",
		v1alpha1.ResumeOnResume: ". With spec.resumeAfterReclaim: OnResume, setting spec.schedule.enabled is not enough",
	} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t)
			w.Edit(w.sm, func() { w.sm.Spec.ResumeAfterReclaim = policy })
			w.askAsPerson()
			w.settle()
			w.gone()
			w.settle()
			notes := w.events()
			if want := "To lend it again: kubectl 5spot -n " + w.sm.Namespace + " resume box" + way; !strings.HasSuffix(notes[len(notes)-1], want) {
				t.Errorf("%q does not end in %q", notes[len(notes)-1], want)
			}
			if got := v1alpha1.ParseReclaimRecord(w.sm.Annotations[v1alpha1.ReclaimedAnnotation]).ServedAt; got != w.clock.Now().UTC().Format(time.RFC3339) {
				t.Errorf("given back at %q", got)
			}
		})
	}
}

// TestALabelTakenOffStopsNoOwner removes 5-Spot's label from the Machine, which the ScheduledMachine still controls.
func TestALabelTakenOffStopsNoOwner(t *testing.T) {
	for name, annotate := range map[string]func(*world){"Node": func(w *world) { w.annotate("true") }, "Person": (*world).askAsPerson} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.machine()
			w.Edit(m, func() { delete(m.Labels, v1alpha1.ScheduledMachineLabel) })
			annotate(w)
			w.settle()
			if w.machine().DeletionTimestamp.IsZero() || w.infra().GetDeletionTimestamp().IsZero() {
				t.Fatalf("the owner is not heard: %v", w.Writes)
			}
			w.gone()
			w.settle()
			if w.sm.ScheduleEnabled() {
				t.Error("the schedule is still on")
			}
		})
	}
}

// askAsPerson writes a person's request to the ScheduledMachine, without a request on the Node.
func (w *world) askAsPerson() {
	w.Helper()
	before := w.sm.DeepCopy()
	w.sm.Annotations = map[string]string{
		v1alpha1.EmergencyReclaimAnnotation: v1alpha1.PersonsRequest(w.node.Name, "Ada needs it", clock.RealClock{}.Now()).String(),
	}
	w.Must(w.Client.Patch(w.Context(), w.sm, client.MergeFrom(before)))
}

func TestAPersonAsks(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	w.settle()
	want := []string{"patch Machine", "delete Machine", "delete GenericInfrastructureMachine", "patch ScheduledMachine", "patch Node"}
	if diff := cmp.Diff(want, w.Writes); diff != "" {
		t.Fatalf("writes until everything is on its way: -want, +got:\n%s", diff)
	}
	if got := len(w.recorder.Events); got != 1 {
		t.Fatalf("%d events, want the one that says who asked", got)
	}
	if got := <-w.recorder.Events; !strings.HasPrefix(got, "Warning EmergencyReclaim ") || !strings.HasSuffix(got, "asked by a person: Ada needs it") {
		t.Errorf("event %q", got)
	}
	w.Writes = nil
	w.gone()
	w.settle()
	if diff := cmp.Diff([]string{"patch ScheduledMachine"}, w.Writes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if w.sm.ScheduleEnabled() || v1alpha1.ParseReclaimRecord(w.sm.Annotations[v1alpha1.ReclaimedAnnotation]).Reason != "asked by a person: Ada needs it" {
		t.Errorf("the schedule must be off, and say why: %v", w.sm.Annotations)
	}
}

func TestAPersonAsksWhileTheNodeAsks(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	w.annotate("true")
	w.settle()
	w.gone()
	w.settle()
	if w.sm.ScheduleEnabled() || w.machine() != nil {
		t.Error("the machine is not given back")
	}
	n := len(w.Writes)
	w.settle()
	if len(w.Writes) != n {
		t.Errorf("it does not rest: %v", w.Writes[n:])
	}
}

// TestAMachineMadeWhileAPersonAskedGoes plays the part of a controller that created the Machine from an older version
// of the ScheduledMachine, without the request.
func TestAMachineMadeWhileAPersonAskedGoes(t *testing.T) {
	w := newWorld(t)
	before := w.sm.DeepCopy()
	w.sm.Spec.Schedule.Enabled = new(false)
	w.sm.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: v1alpha1.PersonsRequest("", "", clock.RealClock{}.Now()).String()}
	w.Must(w.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.settle()
	if w.machine().DeletionTimestamp.IsZero() || w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("the owner's machine stays in the cluster")
	}
	w.gone()
	n := len(w.Writes)
	w.settle()
	if len(w.Writes) != n {
		t.Errorf("there is nothing left to do: %v", w.Writes[n:])
	}
}

// TestAPersonAsksBeforeTheMachineIsMade covers infrastructure without a Machine.
func TestAPersonAsksBeforeTheMachineIsMade(t *testing.T) {
	w := newWorld(t)
	m := w.machine()
	m.SetFinalizers(nil)
	w.Must(w.Client.Update(t.Context(), m))
	w.Must(w.Client.Delete(t.Context(), m))
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
	w.Must(w.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("it was not requested: %v", w.Writes)
	}
}

// events returns the Events since the last call.
func (w *world) events() []string {
	var notes []string
	for len(w.recorder.Events) > 0 {
		notes = append(notes, <-w.recorder.Events)
	}
	return notes
}

// keep holds the Node with a finalizer, like a slow cloud controller.
func (w *world) keep() {
	w.Helper()
	before := w.node.DeepCopy()
	w.node.Finalizers = append(w.node.Finalizers, "test/keep")
	w.Must(w.Client.Patch(w.Context(), w.node, client.MergeFrom(before)))
	w.Cleanup(func() {
		_ = w.Client.Patch(context.WithoutCancel(w.Context()), w.node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
}

func TestNodeThatStaysIsClearedLast(t *testing.T) {
	w := newWorld(t)
	w.keep()
	w.taint(corev1.Taint{Key: "example.com/dedicated", Effect: corev1.TaintEffectNoSchedule})
	w.annotate("true")
	w.Edit(w.node, func() { w.node.Annotations[reclaimapi.HoldAnnotation] = reclaimapi.HoldState{Pods: 8}.Text() })
	w.settle()
	w.gone()
	w.Writes = nil
	w.settle()
	if diff := cmp.Diff([]string{"patch ScheduledMachine", "delete Node", "patch Node"}, w.Writes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if w.Read(w.node); len(w.node.Annotations) != 0 {
		t.Errorf("the Node is not cleared: %v", w.node.Annotations)
	}
	if !w.tainted("example.com/dedicated") || !w.tainted(reclaimapi.NodeTaint) {
		t.Errorf("taints are %v", w.node.Spec.Taints)
	}
}

// TestARefusedDeletionOfTheNodeLeavesNoRequest covers an admission policy that rejects the deletion of the Node. The
// agent must be able to make the next request.
func TestARefusedDeletionOfTheNodeLeavesNoRequest(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	w.settle()
	w.gone()
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "delete Node" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, w.node.Name, errors.New("Nodes stay")), nil
		}
		return nil, nil
	}
	w.Writes = nil
	w.settle()
	if diff := cmp.Diff([]string{"patch ScheduledMachine", "delete Node", "patch Node"}, w.Writes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if w.Read(w.node); len(w.node.Annotations) != 0 {
		t.Errorf("the Node is not cleared: %v", w.node.Annotations)
	}
}

// TestRequestThatIsSentAgain covers an agent that received no response to its request. It writes the request again
// after it was served.
func TestRequestThatIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.keep()
	w.annotate("true")
	w.settle()
	w.gone()
	w.settle()
	w.events()
	w.Writes = nil
	want := w.sm.DeepCopy()
	w.Read(w.node)
	w.annotate("true")
	w.settle()
	if diff := cmp.Diff([]string{"patch Node"}, w.Writes); diff != "" {
		t.Errorf("It is cleared, and that is all: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, w.sm); diff != "" {
		t.Errorf("It is counted once: -before, +after:\n%s", diff)
	}
	if notes := w.events(); len(notes) != 0 {
		t.Errorf("events %q, want none", notes)
	}
	if w.Read(w.node); reclaimapi.Requested(w.node.Annotations) {
		t.Error("the request still stands")
	}
}

// TestAServedRequestIsNotServedAgainAfterResume covers an outage of the workload cluster. The Node still has the
// request, and has been ready since before it. The machine is resumed meanwhile.
func TestAServedRequestIsNotServedAgainAfterResume(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	ready(time.Date(2026, time.April, 20, 21, 0, 0, 0, time.UTC))(w.node)
	w.Must(w.Client.Status().Update(t.Context(), w.node))
	w.returnInAnOutage(time.Now().Add(time.Hour))
	if m := w.machine(); m == nil || !m.DeletionTimestamp.IsZero() || !w.sm.ScheduleEnabled() {
		t.Errorf("the request before the resume has taken the machine: %v", m)
	}
	if w.Read(w.node); reclaimapi.Requested(w.node.Annotations) {
		t.Error("the served request still stands")
	}
	w.annotate("true")
	before := w.node.DeepCopy()
	w.node.Annotations[reclaimapi.RequestedAtAnnotation] = "2026-04-20T23:00:00Z"
	w.Must(w.Client.Patch(t.Context(), w.node, client.MergeFrom(before)))
	w.settle()
	if m := w.machine(); m != nil && m.DeletionTimestamp.IsZero() {
		t.Error("a later request of the owner is not served")
	}
}

// returnInAnOutage serves the request of the Node while the workload cluster is unreachable. The machine is then
// resumed, and joins again on the same Node, which still has the request.
func (w *world) returnInAnOutage(created time.Time) {
	w.Helper()
	_, err := w.reconcile()
	w.Must(err)
	w.disconnected = true
	w.settle()
	w.gone()
	w.settle()
	if w.sm.ScheduleEnabled() {
		w.Fatal("the request is not served")
	}
	w.Edit(w.sm, func() { // Like kubectl 5spot resume and the next status report.
		delete(w.sm.Annotations, v1alpha1.ReclaimedAnnotation)
		w.sm.Spec.Schedule.Enabled = new(true)
	})
	w.settle()
	w.join(created)
	w.disconnected = false
	w.settle()
}

// join creates the Machine again, on the same Node.
func (w *world) join(created time.Time) {
	w.Helper()
	desired, err := children.Machine(w.sm, "", created, nil)
	w.Must(err)
	w.Create(desired)
	m := w.machine()
	m.Status.NodeRef.Name = w.node.Name
	w.Must(w.Client.Status().Update(w.Context(), m))
}

// TestANodeThatOutlivesItsMachineTakesPodsAgain covers a policy that rejects the deletion of the Node. The machine is
// resumed, and joins again on the same Node.
func TestANodeThatOutlivesItsMachineTakesPodsAgain(t *testing.T) {
	for name, ask := range map[string]func(*world){"Node": func(w *world) { w.annotate("true") }, "Person": (*world).askAsPerson} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.taint(corev1.Taint{Key: "example.com/dedicated", Effect: corev1.TaintEffectNoSchedule})
			w.refuse("delete Node", func() error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, w.node.Name, errors.New("Nodes stay"))
			})
			ask(w)
			w.settle()
			w.gone()
			w.settle()
			if w.Read(w.node); !w.tainted(reclaimapi.NodeTaint) || w.sm.ScheduleEnabled() {
				t.Fatalf("the owner has the machine, and pods start on its Node: %v", w.node.Spec.Taints)
			}
			w.Edit(w.sm, func() { w.sm.Spec.Schedule.Enabled = new(true) }) // Like kubectl 5spot resume.
			w.join(time.Now())
			w.Writes = nil
			w.settle()
			if diff := cmp.Diff([]string{"patch Node"}, w.Writes); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if w.Read(w.node); w.tainted(reclaimapi.NodeTaint) || !w.tainted("example.com/dedicated") {
				t.Errorf("taints are %v", w.node.Spec.Taints)
			}
		})
	}
}

// annotateByHand sets the request without a time, as the guide does.
func (w *world) annotateByHand() {
	w.Helper()
	before := w.node.DeepCopy()
	w.node.Annotations = map[string]string{reclaimapi.RequestedAnnotation: "true", reclaimapi.ReasonAnnotation: "Ada needs it"}
	w.Must(w.Client.Patch(w.Context(), w.node, client.MergeFrom(before), client.FieldOwner("kubectl-annotate")))
}

// TestRequestsWithoutATime covers two requests of a person on a Node that stays. The first request, which remains on
// the Node because of an outage, is not served again. The second request is.
func TestRequestsWithoutATime(t *testing.T) {
	w := newWorld(t)
	w.keep()
	w.annotateByHand()
	w.returnInAnOutage(time.Now())
	if m := w.machine(); m == nil || !m.DeletionTimestamp.IsZero() || !w.sm.ScheduleEnabled() {
		t.Fatalf("the first request is served twice: %v", m)
	}
	w.Read(w.node)
	if reclaimapi.Requested(w.node.Annotations) {
		t.Fatal("the first request still stands")
	}
	time.Sleep(time.Second) // The API server records times in whole seconds.
	w.annotateByHand()
	w.settle()
	if m := w.machine(); m != nil && m.DeletionTimestamp.IsZero() {
		t.Error("the second request is not served")
	}
}

// TestNothingIsEjectedForAnotherObject deletes the ScheduledMachine while its request is being recorded.
func TestNothingIsEjectedForAnotherObject(t *testing.T) {
	for name, createdAgain := range map[string]bool{"Deleted": false, "CreatedAgain": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.annotate("true")
			w.Fail = func(n int) (before, after error) {
				if n > 0 {
					return nil, nil
				}
				w.Must(w.Client.Delete(t.Context(), w.sm.DeepCopy()))
				if createdAgain {
					w.sm = testenv.ScheduledMachine(w.sm.Namespace, "box")
					w.Create(w.sm)
				}
				return apierrors.NewConflict(schema.GroupResource{Resource: "scheduledmachines"}, "box", errors.New("it has changed")), nil
			}
			_, err := w.reconcile()
			w.Must(err)
			if diff := cmp.Diff([]string{"patch ScheduledMachine"}, w.Writes); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func (w *world) taint(taint corev1.Taint) {
	w.Helper()
	before := w.node.DeepCopy()
	w.node.Spec.Taints = append(w.node.Spec.Taints, taint)
	w.Must(w.Client.Patch(w.Context(), w.node, client.MergeFrom(before)))
}

func (w *world) tainted(key string) bool {
	return slices.ContainsFunc(w.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// TestNodeOutlivesItsInfrastructure covers a Machine object that still waits while its machine is gone.
func TestNodeOutlivesItsInfrastructure(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	w.settle()
	if w.Read(w.node); !w.tainted(reclaimapi.NodeTaint) {
		t.Error("pods are not started elsewhere")
	}
	w.release(w.infra())
	w.settle()
	if w.Read(w.node) {
		t.Error("the Node outlives its machine")
	}
	if w.machine() == nil || !w.sm.ScheduleEnabled() {
		t.Error("the reclaim is not over yet")
	}
}

// TestNodeOfTheSameName checks that another Node of the same name is not deleted.
func TestNodeOfTheSameName(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	w.settle()
	w.Must(w.Client.Delete(t.Context(), w.node))
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node.Name}}
	w.Create(w.node)
	w.settle()
	w.gone()
	w.settle()
	if !w.Read(w.node) || w.tainted(reclaimapi.NodeTaint) {
		t.Errorf("touched: %+v", w.node)
	}
	if w.sm.ScheduleEnabled() {
		t.Error("the reclaim does not end")
	}
}

func TestUnreachableNodeHoldsNothingUp(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	noRoute := errors.New("no route to the workload cluster")
	w.Fail = func(n int) (before, after error) {
		if strings.HasSuffix(w.Writes[n], " Node") {
			return noRoute, nil
		}
		return nil, nil
	}
	w.try(noRoute)
	if w.machine().DeletionTimestamp.IsZero() || w.infra().GetDeletionTimestamp().IsZero() {
		t.Error("not everything is being deleted")
	}
	w.gone()
	w.try(noRoute)
	if w.sm.ScheduleEnabled() {
		t.Error("the schedule is still on")
	}
	w.Fail = nil
	w.settle()
	if w.Read(w.node) {
		t.Error("the Node is forgotten")
	}
}

// try reconciles until only the failure want remains. Reconcile must return it for a retry, and no other failure may
// occur.
func (w *world) try(want error) {
	w.Helper()
	var err error
	for range 5 {
		w.r = nil
		if _, err = w.reconcile(); err != nil && !errors.Is(err, want) {
			w.Errorf("reconciling: %v", err)
		}
	}
	if err == nil {
		w.Errorf("a failed write is not retried: %v", want)
	}
	w.Read(w.sm)
}

func TestForgedRequest(t *testing.T) {
	w := newWorld(t)
	m := w.machine()
	before := m.DeepCopy()
	m.Spec.ProviderID = "lab://box"
	w.Must(w.Client.Patch(t.Context(), m, client.MergeFrom(before)))
	node := w.node.DeepCopy()
	w.node.Spec.ProviderID = "lab://other"
	w.Must(w.Client.Patch(t.Context(), w.node, client.MergeFrom(node)))
	w.refused("foreign_host", "providerID")
}

// TestAnotherHostThatSaysItIsThisOne covers another host with the Node's name, whose data Cluster API mirrors. Data of
// an earlier Machine does not count.
func TestAnotherHostThatSaysItIsThisOne(t *testing.T) {
	w := newWorld(t)
	m := w.machine()
	m.Status.NodeInfo = &corev1.NodeSystemInfo{MachineID: "theirs"}
	w.Must(w.Client.Status().Update(t.Context(), m))
	w.node.Status.NodeInfo.MachineID = "theirs"
	w.Must(w.Client.Status().Update(t.Context(), w.node))
	w.sm.Status.NodeRef = &v1alpha1.NodeReference{Name: w.node.Name, MachineID: "ours"}
	w.sm.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: m.Name, UID: m.UID}
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.refused("foreign_host", "machine ID")
	w.sm.Status.MachineRef.UID = "earlier"
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.settle()
	if w.machine().DeletionTimestamp.IsZero() {
		t.Error("an owner is refused because of what was known of an earlier machine")
	}
}

func TestControlPlaneIsNotReclaimed(t *testing.T) {
	w := newWorld(t)
	m := w.machine()
	before := m.DeepCopy()
	m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	w.Must(w.Client.Patch(t.Context(), m, client.MergeFrom(before)))
	w.refused("control_plane", "control plane")

	t.Log("A mark made by hand is taken off.")
	sm := w.sm.DeepCopy()
	w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"}
	w.Must(w.Client.Patch(t.Context(), w.sm, client.MergeFrom(sm)))
	w.settle()
	if w.sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] != "" || !w.machine().DeletionTimestamp.IsZero() {
		t.Errorf("writes %v", w.Writes)
	}
	if notes := w.events(); len(notes) == 0 || !strings.HasPrefix(notes[0], "Warning "+v1alpha1.ReclaimRequestRejectedEvent) {
		t.Errorf("no Event: %q", notes)
	}
}

// refused makes a request, and checks that no write follows, that one Event is recorded, and that one more request is
// counted.
func (w *world) refused(reason, says string) {
	w.Helper()
	before := testutil.ToFloat64(reclaim.ScreenedRequests.WithLabelValues(reason))
	w.annotate("true")
	for range 3 {
		w.resync()
	}
	if len(w.Writes) != 0 {
		w.Errorf("writes %v", w.Writes)
	}
	if notes := w.events(); len(notes) != 1 || !strings.HasPrefix(notes[0], "Warning "+v1alpha1.ReclaimRequestRejectedEvent) || !strings.Contains(notes[0], says) {
		w.Errorf("events %q", notes)
	}
	if got := testutil.ToFloat64(reclaim.ScreenedRequests.WithLabelValues(reason)) - before; got != 1 {
		w.Errorf("%v requests counted as %s, want 1", got, reason)
	}
}

func TestRapidReReclaim(t *testing.T) {
	w := newWorld(t)
	for i, tc := range []struct {
		at    time.Duration
		rapid bool
	}{{0, false}, {time.Minute, false}, {11 * time.Minute, false}, {11*time.Minute + time.Second, false}, {20 * time.Minute, true}} {
		w.clock.SetTime(noon.Add(tc.at))
		before := w.sm.DeepCopy() // A person lends the machine again.
		delete(w.sm.Annotations, v1alpha1.EmergencyReclaimAnnotation)
		w.Must(w.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
		w.node.Annotations = nil
		w.annotate("true")
		w.settle()
		got := slices.ContainsFunc(w.events(), func(note string) bool {
			return strings.HasPrefix(note, "Warning "+v1alpha1.RapidReReclaimEvent+" Reclaimed 3 times within 10m0s")
		})
		if got != tc.rapid {
			t.Errorf("reclaim %d: told %t, want %t; %s", i, got, tc.rapid, w.sm.Annotations[v1alpha1.ReclaimTimesAnnotation])
		}
	}
	if got, want := w.sm.Annotations[v1alpha1.ReclaimTimesAnnotation], "2025-01-15T12:11:00Z,2025-01-15T12:11:01Z,2025-01-15T12:20:00Z"; got != want {
		t.Errorf("remembered %s, want %s", got, want)
	}
}

func TestEmergencySurge(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		other := w.sm.DeepCopy()
		other.ObjectMeta = metav1.ObjectMeta{
			Namespace: w.sm.Namespace, Name: name,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: "lab"},
			Annotations: map[string]string{v1alpha1.ReclaimTimesAnnotation: noon.Add(-time.Minute).Format(time.RFC3339)},
		}
		if name == "d" {
			other.Annotations[v1alpha1.ReclaimTimesAnnotation] = noon.Add(-time.Hour).Format(time.RFC3339)
		}
		w.Create(other)
	}
	before := w.sm.DeepCopy()
	w.sm.Labels = map[string]string{clusterv1.ClusterNameLabel: "lab"}
	w.Must(w.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.annotate("true")
	w.settle()
	notes := w.events()
	if !slices.ContainsFunc(notes, func(note string) bool {
		return strings.HasPrefix(note, "Warning "+v1alpha1.EmergencySurgeEvent+" 4 emergency reclaims within 10m0s among 4 machines")
	}) {
		t.Errorf("events %q", notes)
	}
}

func TestOnlyTheLiteralTrueIsARequest(t *testing.T) {
	w := newWorld(t)
	for _, value := range []string{"false", "0", "", "True", "1", "yes", " true", "true "} {
		w.annotate(value)
		w.settle()
		if len(w.Writes) != 0 {
			t.Fatalf("%q: %v", value, w.Writes)
		}
	}
}

func TestTheOwnerAsksInTheMiddleOfADrain(t *testing.T) {
	w := newWorld(t)
	w.Must(w.Client.Delete(t.Context(), w.machine()))
	w.annotate("true")
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
		hooks  children.ForeignHookPolicy
		waits  bool
	}{
		"Bypassed": {"The Machine object waits, the owner does not.", children.BypassHooks, false},
		"Honoured": {"A flag gives deletion hooks of others precedence.", children.HonourHooks, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.hooks = tc.hooks
			w.hook(hook, true)
			w.annotate("true")
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

// hook adds a deletion hook of another controller to the Machine, or removes it.
func (w *world) hook(key string, on bool) {
	w.Helper()
	m := w.machine()
	before := m.DeepCopy()
	delete(m.Annotations, key)
	if on {
		m.Annotations[key] = "somebody"
	}
	w.Must(w.Client.Patch(w.Context(), m, client.MergeFrom(before)))
}

func TestPausedDoesNothing(t *testing.T) {
	w := newWorld(t)
	before := w.sm.DeepCopy()
	w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	w.Must(w.Client.Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.annotate("true")
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("%v", w.Writes)
	}
}

// TestAMachineIsEjectedOnce uses a cache that shows the Machine from before its ejection.
func TestAMachineIsEjectedOnce(t *testing.T) {
	w := newWorld(t)
	reads, thaw := w.Late(w.machine())
	w.r = w.reconciler(w.Recorded(reads))
	w.annotate("true")
	if _, err := w.reconcile(); err != nil || w.machine().DeletionTimestamp.IsZero() {
		t.Fatalf("the Machine is not being deleted: %v, %v", err, w.Writes)
	}
	w.Writes = nil
	for range 3 {
		if next, err := w.reconcile(); err != nil || next.RequeueAfter < wake.QuietRetry || len(w.Writes) != 0 {
			t.Fatalf("from a late cache: writes %v, next look in %v, %v", w.Writes, next.RequeueAfter, err)
		}
	}
	thaw()
	w.resync()
	if diff := cmp.Diff([]string{"patch Node"}, w.Writes); diff != "" {
		t.Errorf("what is left to do: -want, +got:\n%s", diff)
	}
}

// TestAnOwnerIsServedUntilTheMachineIsEjected checks the count of waiting owners during the last write of an ejection.
func TestAnOwnerIsServedUntilTheMachineIsEjected(t *testing.T) {
	w := newWorld(t)
	defer w.tracker.Serve()() // another one
	others := func() bool { return w.tracker.Wait([]time.Time{noon}, noon) > 0 }
	served := false
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "delete GenericInfrastructureMachine" {
			served = others()
		}
		return nil, nil
	}
	w.annotate("true")
	if _, err := w.reconcile(); err != nil || !served {
		t.Errorf("the waiting owner is not counted: %v, %v", err, w.Writes)
	}
	if others() {
		t.Error("the owner is still being served")
	}
}

// TestTheRecordWaitsForOtherOwners covers a machine that is gone while two other owners still wait.
func TestTheRecordWaitsForOtherOwners(t *testing.T) {
	w := newWorld(t)
	first, second := w.tracker.Serve(), w.tracker.Serve()
	w.annotate("true")
	w.settle()
	want := []string{"patch ScheduledMachine", "patch Machine", "delete Machine", "delete GenericInfrastructureMachine", "patch Node"}
	if diff := cmp.Diff(want, w.Writes); diff != "" {
		t.Fatalf("what no owner waits for others with: -want, +got:\n%s", diff)
	}
	w.gone()
	w.Writes = nil
	if next, err := w.reconcile(); err != nil || next.RequeueAfter != time.Second || len(w.Writes) != 0 {
		t.Fatalf("owners wait for %v; next look in %v, %v", w.Writes, next.RequeueAfter, err)
	}
	first()
	w.settle()
	if w.sm.ScheduleEnabled() {
		t.Error("the schedule is still on")
	}
	second()
}

// TestCrashPoints stops the controller before each write, and after each write with the response lost, and restarts it.
// Each run must end like the run without a crash.
func TestCrashPoints(t *testing.T) { testenv.CrashPoints(t, 7, story) }

// story runs a whole reclaim, and returns two observed states.
func story(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w := newWorld(t)
	w.Fail = fail
	tell := func() {
		exists := w.Read(w.node)
		m, i := w.machine(), w.infra()
		stations = append(stations, fmt.Sprintf("enabled=%t annotations=%v machine=%t infra=%t node=%t tainted=%t", w.sm.ScheduleEnabled(),
			strings.ReplaceAll(fmt.Sprint(w.sm.Annotations), string(w.node.UID), "UID"),
			m != nil && m.DeletionTimestamp.IsZero(), i != nil && i.GetDeletionTimestamp().IsZero(), exists, w.tainted(reclaimapi.NodeTaint)))
		stations[len(stations)-1] = strings.ReplaceAll(stations[len(stations)-1], w.node.Name, "NODE")
	}
	w.annotate("true")
	w.settle()
	tell()
	w.gone()
	w.settle()
	tell()
	return stations, len(w.Writes)
}
