// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// taintWorld is a running machine whose Node is in the same API server. Only the reconciler under test runs. The test plays
// the part of Cluster API.
type taintWorld struct {
	*testenv.Fixture
	sm   *v1alpha1.ScheduledMachine
	node *corev1.Node
	// lost is a ClusterCache without a connection, nil while there is one.
	lost clustercache.ClusterCache
	// meanwhile runs between the read and the write of the Node.
	meanwhile func()
}

var (
	batch  = v1alpha1.NodeTaint{Key: "example.org/borrowed", Value: "batch", Effect: corev1.TaintEffectNoSchedule}
	other  = v1alpha1.NodeTaint{Key: "example.org/other", Effect: corev1.TaintEffectPreferNoSchedule}
	theirs = corev1.Taint{Key: "admin", Value: "x", Effect: corev1.TaintEffectNoExecute}
)

func newTaintWorld(t *testing.T, taints ...v1alpha1.NodeTaint) *taintWorld {
	t.Helper()
	w := &taintWorld{Fixture: server.Fixture(t)}
	ns := server.Namespace(t)
	w.sm = testenv.ScheduledMachine(ns, "box")
	w.sm.Spec.NodeTaints = taints
	w.Create(testenv.Cluster(ns), w.sm)
	machine, err := children.Machine(w.sm, "", time.Now(), nil)
	w.Must(err)
	machine.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.Create(machine)
	return w
}

// withNode creates the machine's Node, ready or not, with taints of another writer.
func (w *taintWorld) withNode(ready bool, taints ...corev1.Taint) *taintWorld {
	w.Helper()
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}, Spec: corev1.NodeSpec{Taints: taints}}
	w.makeNode(ready)
	m := w.machine()
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: w.node.Name}
	w.Must(w.Client.Status().Update(w.Context(), m))
	return w
}

func (w *taintWorld) makeNode(ready bool) {
	w.Helper()
	taints := w.node.Spec.Taints
	w.Create(w.node)
	// The API server adds one taint, which Kubernetes removes when the Node is ready.
	w.Edit(w.node, func() { w.node.Spec.Taints = taints })
	node := w.node
	w.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(w.Context()), node) })
	w.setReady(ready)
}

func (w *taintWorld) setReady(ready bool) {
	w.Helper()
	w.Read(w.node)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	w.node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: status},
	}
	w.Must(w.Client.Status().Update(w.Context(), w.node))
}

func (w *taintWorld) machine() *clusterv1.Machine {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "box-machine"}}
	w.Read(m)
	return m
}

func (w *taintWorld) editTaints(taints ...v1alpha1.NodeTaint) {
	w.Helper()
	w.Edit(w.sm, func() { w.sm.Spec.NodeTaints = taints })
}

// reconcile runs a new reconciler once, as after a restart.
func (w *taintWorld) reconcile() (ctrl.Result, error) {
	w.Helper()
	res, err := w.reconciler(clock.RealClock{}).Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
	w.Read(w.sm)
	return res, err
}

func (w *taintWorld) reconciler(now clock.PassiveClock) *node.Reconciler {
	c := w.client()
	cache := w.lost
	if cache == nil {
		cache = clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, node.NodesWatch)
	}
	return (&node.Reconciler{
		Clock: now, Reader: c, Actuate: actuate.New(c), ClusterCache: cache,
		Children: children.Reader{Cached: c, Live: c},
	}).WithoutWatches()
}

// settle reconciles until no writes follow.
func (w *taintWorld) settle() {
	w.Helper()
	for range 10 {
		n := len(w.Writes)
		res, err := w.reconcile()
		if err == nil && res.IsZero() && len(w.Writes) == n {
			if w.node != nil {
				if err := w.Client.Get(w.Context(), client.ObjectKeyFromObject(w.node), w.node); client.IgnoreNotFound(err) != nil {
					w.Fatal(err)
				}
			}
			return
		}
	}
	w.Fatalf("does not settle: %v", w.Writes)
}

// client reads Nodes like the cache.
func (w *taintWorld) client() client.Client {
	return w.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, obj, opts...); err != nil {
				return err
			}
			if node, ok := obj.(*corev1.Node); ok {
				trimmed, err := workload.TrimNode(node.DeepCopy())
				if err != nil {
					return err
				}
				trimmed.(*corev1.Node).DeepCopyInto(node)
				if w.meanwhile != nil {
					w.meanwhile()
				}
			}
			return nil
		},
	})
}

// want checks the condition and appliedNodeTaints. An empty status means no condition.
func (w *taintWorld) want(status metav1.ConditionStatus, reason, message string, applied ...v1alpha1.NodeTaint) {
	w.Helper()
	c := conditions.Get(w.sm, v1alpha1.NodeTaintedCondition)
	switch {
	case c == nil && status == "":
	case c == nil:
		w.Errorf("there is no condition, want %s/%s", status, reason)
	case c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message):
		w.Errorf("got %s/%s: %s, want %s/%s: %s", c.Status, c.Reason, c.Message, status, reason, message)
	}
	var want []v1alpha1.AppliedNodeTaint
	for _, t := range applied {
		want = append(want, v1alpha1.AppliedNodeTaint(t))
	}
	if diff := cmp.Diff(want, w.sm.Status.AppliedNodeTaints); diff != "" {
		w.Errorf("applied: -want, +got:\n%s", diff)
	}
}

// wantNode checks the Node's taints and 5-Spot's record.
func (w *taintWorld) wantNode(record string, taints ...corev1.Taint) {
	w.Helper()
	if diff := cmp.Diff(taints, w.node.Spec.Taints); diff != "" {
		w.Errorf("taints of the Node: -want, +got:\n%s", diff)
	}
	if got := w.node.Annotations[v1alpha1.NodeAppliedTaintsAnnotation]; got != record {
		w.Errorf("record %s, want %s", got, record)
	}
}

const batchRecord = `[{"key":"example.org/borrowed","value":"batch","effect":"NoSchedule"}]`

func onNode(t v1alpha1.NodeTaint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// ours is a taint of 5-Spot on a Node.
var ours = onNode(batch)

func TestTaintsAreAppliedOnceTheNodeIsReady(t *testing.T) {
	w := newTaintWorld(t, batch)
	w.settle()
	w.want(metav1.ConditionUnknown, "NoNodeYet", "There is no Node yet")
	w.withNode(false, theirs).settle()
	w.want(metav1.ConditionFalse, "NodeNotReady", w.node.Name+" is not ready")
	w.wantNode("", theirs)
	w.setReady(true)
	w.Writes = nil
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", w.node.Name, batch)
	w.wantNode(batchRecord, theirs, ours)
	if diff := cmp.Diff([]string{"patch Node", "patch ScheduledMachine status"}, w.Writes); diff != "" {
		t.Errorf("taints and record are one write: -want, +got:\n%s", diff)
	}
	w.Writes = nil
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("a settled Node is not written: %v", w.Writes)
	}
}

func TestWithoutTaintsNothingIsReported(t *testing.T) {
	w := newTaintWorld(t).withNode(true, theirs)
	w.settle()
	w.lost = unreachable{}
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("a machine without taints causes no write: %v", w.Writes)
	}
	w.want("", "", "")
}

func TestValueOfOursChanges(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true, theirs)
	w.settle()
	added := metav1.Now().Rfc3339Copy()
	w.Edit(w.node, func() { w.node.Spec.Taints[1].TimeAdded = &added })
	ml := batch
	ml.Value = "ml"
	w.editTaints(ml, other)
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", ml, other)
	changed := onNode(ml)
	changed.TimeAdded = &added
	w.wantNode(`[{"key":"example.org/borrowed","value":"ml","effect":"NoSchedule"},{"key":"example.org/other","value":"","effect":"PreferNoSchedule"}]`,
		theirs, changed, onNode(other))
}

func TestListIsCleared(t *testing.T) {
	w := newTaintWorld(t, batch, other).withNode(true, theirs)
	w.settle()
	w.editTaints(batch)
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
	w.wantNode(batchRecord, theirs, ours)
	w.editTaints()
	w.settle()
	w.want("", "", "")
	w.wantNode("", theirs)
}

func TestForeignEqualTaintIsLeft(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true, ours)
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "")
	w.wantNode("", ours)
	w.editTaints()
	w.settle()
	w.wantNode("", ours)
}

func TestForeignValueIsAConflict(t *testing.T) {
	held := corev1.Taint{Key: batch.Key, Value: "desktop", Effect: batch.Effect}
	w := newTaintWorld(t, other, batch).withNode(true, held)
	w.settle()
	w.want(metav1.ConditionFalse, "TaintOwnershipConflict",
		"spec.nodeTaints wants example.org/borrowed=batch:NoSchedule, the Node has example.org/borrowed=desktop:NoSchedule, set by another manager")
	w.wantNode("", held)
	w.Edit(w.node, func() { w.node.Spec.Taints = nil })
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch, other)
}

func TestAnotherWriterChangesOurTaint(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.settle()
	w.Edit(w.node, func() { w.node.Spec.Taints[0].Value = "desktop" })
	held := corev1.Taint{Key: batch.Key, Value: "desktop", Effect: batch.Effect}
	w.settle()
	w.want(metav1.ConditionFalse, "TaintOwnershipConflict", "which was changed after 5-Spot had set example.org/borrowed=batch:NoSchedule")
	w.wantNode(batchRecord, held)
	w.editTaints()
	w.settle()
	w.want("", "", "")
	w.wantNode("", held)
}

func TestARemovedTaintIsRestored(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.settle()
	w.Edit(w.node, func() { w.node.Spec.Taints = nil })
	w.settle()
	w.wantNode(batchRecord, ours)
}

func TestUnreadableRecordIsNotAnEmptyOne(t *testing.T) {
	for _, record := range []string{"", "{", "null", `[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]`} {
		t.Run(record, func(t *testing.T) {
			w := newTaintWorld(t, batch).withNode(true)
			w.settle()
			w.Edit(w.node, func() { w.node.Annotations[v1alpha1.NodeAppliedTaintsAnnotation] = record })
			w.editTaints()
			w.settle()
			w.want(metav1.ConditionFalse, "TaintOwnershipConflict", "annotation 5spot.finos.org/applied-taints of the Node cannot be read", batch)
			w.wantNode(record, ours)
			w.Edit(w.node, func() { w.node.Annotations[v1alpha1.NodeAppliedTaintsAnnotation] = batchRecord })
			w.settle()
			w.want("", "", "")
			w.wantNode("")
		})
	}
}

func TestARecordThatIsInvalidNowIsReported(t *testing.T) {
	old := v1alpha1.NodeTaint{Key: "old_key", Effect: corev1.TaintEffectNoSchedule}
	w := newTaintWorld(t, batch).withNode(false, onNode(old))
	w.Edit(w.node, func() {
		w.node.Annotations = map[string]string{v1alpha1.NodeAppliedTaintsAnnotation: `[{"key":"old_key","value":"","effect":"NoSchedule"}]`}
	})
	w.settle()
	w.want(metav1.ConditionFalse, "NodeNotReady", "", old)
	w.setReady(true)
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
	w.wantNode(batchRecord, ours)
}

func TestNodeIsReplaced(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.settle()
	name := w.node.Name
	w.Must(w.Client.Delete(t.Context(), w.node))
	w.settle()
	w.want(metav1.ConditionUnknown, "NoNodeYet", "")
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.makeNode(true)
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
	w.wantNode(batchRecord, ours)
}

func TestConcurrentTaintIsNotLost(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.meanwhile = func() {
		w.meanwhile = nil
		w.Edit(w.node, func() { w.node.Spec.Taints = []corev1.Taint{theirs} })
	}
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
	w.wantNode(batchRecord, theirs, ours)
	if diff := cmp.Diff([]string{"patch Node", "patch Node", "patch ScheduledMachine status"}, w.Writes); diff != "" {
		t.Errorf("a rejected write must be reported: -want, +got:\n%s", diff)
	}
}

func TestPatchIsRefused(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, w.node.Name, errors.New("hands off"))
	w.Fail = func(n int) (error, error) {
		if w.Writes[n] == "patch Node" {
			return refused, nil
		}
		return nil, nil
	}
	for range 2 {
		if _, err := w.reconcile(); !apierrors.IsForbidden(err) {
			t.Fatalf("got %v, want the refusal, so that it is tried again", err)
		}
		w.want(metav1.ConditionFalse, "PatchFailed", "hands off")
	}
	if diff := cmp.Diff([]string{"patch Node", "patch ScheduledMachine status", "patch Node"}, w.Writes); diff != "" {
		t.Errorf("the same refusal is reported once: -want, +got:\n%s", diff)
	}
	w.Fail = nil
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
}

// TestAConflictThatLastsCostsOneTryPerBackOff covers a webhook that answers 409.
func TestAConflictThatLastsCostsOneTryPerBackOff(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.Fail = func(int) (error, error) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, w.node.Name, errors.New("not now")), nil
	}
	now := clocktesting.NewFakePassiveClock(time.Now())
	begin, r := now.Now(), w.reconciler(now)
	for now.Since(begin) < time.Minute {
		next, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
		if err == nil && next.RequeueAfter <= 0 {
			t.Fatalf("after %v: no requeue without a wait", now.Since(begin))
		}
		now.SetTime(now.Now().Add(max(10*time.Millisecond, min(next.RequeueAfter, time.Second))))
	}
	if got := len(w.Writes); got < 8 || got > 11 { // 50 ms, doubled
		t.Errorf("%d tries in a minute: %v", got, w.Writes)
	}
}

// unreachable is the cache of a cluster whose connection attempt failed.
type unreachable struct{ clustercache.ClusterCache }

func (unreachable) Watch(context.Context, client.ObjectKey, clustercache.Watcher) error {
	return clustercache.ErrClusterNotConnected
}

func (unreachable) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return nil, clustercache.ErrClusterNotConnected
}

func (unreachable) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: time.Unix(1, 0)}
}

func TestDisconnectedIsUnknown(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.settle()
	w.lost = unreachable{}
	w.settle()
	w.want(metav1.ConditionUnknown, "NotConnected", "The workload cluster is not connected", batch)
	w.editTaints()
	w.settle()
	w.want(metav1.ConditionUnknown, "NotConnected", "", batch)
	w.wantNode(batchRecord, ours)
	w.lost = nil
	w.settle()
	w.want("", "", "")
	w.wantNode("")
}

func TestAManagerThatStartsLeavesReportedTaints(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.settle()
	w.lost, w.Writes = clustercache.NewFakeEmptyClusterCache(), nil
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("it has tried nothing yet; got %v", w.Writes)
	}
	w.want(metav1.ConditionTrue, "Applied", "", batch)
}

// TestConnectionIsLostBeforeTheWrite covers a connection that breaks between the read and the write.
func TestConnectionIsLostBeforeTheWrite(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.lost = readOnly{clustercache.NewFakeClusterCache(w.client(), client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, node.NodesWatch)}
	w.settle()
	w.want(metav1.ConditionUnknown, "NotConnected", "")
	w.lost = nil
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
}

type readOnly struct{ clustercache.ClusterCache }

func (readOnly) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, clustercache.ErrClusterNotConnected
}

func TestAMachineThatLeavesIsLeftAlone(t *testing.T) {
	cases := map[string]func(*taintWorld){
		"machine deleted": func(w *taintWorld) { w.Must(w.Client.Delete(w.Context(), w.machine())) },
		"kill switch":     func(w *taintWorld) { w.Edit(w.sm, func() { w.sm.Spec.KillSwitch = true }) },
		"owner asks": func(w *taintWorld) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
		},
		"paused": func(w *taintWorld) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		},
	}
	for name, leave := range cases {
		t.Run(name, func(t *testing.T) {
			w := newTaintWorld(t, batch).withNode(true)
			leave(w)
			w.settle()
			if len(w.Writes) != 0 {
				t.Errorf("%v", w.Writes)
			}
		})
	}
}

// TestADeletedScheduledMachineKeepsItsTaints covers a safety rail that keeps the Machine of a deleted ScheduledMachine.
func TestADeletedScheduledMachineKeepsItsTaints(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.Edit(w.sm, func() { w.sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} })
	w.Must(w.Client.Delete(t.Context(), w.sm))
	w.settle()
	w.want(metav1.ConditionTrue, "Applied", "", batch)
}

func TestMachineIsGone(t *testing.T) {
	w := newTaintWorld(t, batch).withNode(true)
	w.settle()
	m := w.machine()
	w.Must(w.Client.Delete(t.Context(), m))
	w.Edit(m, func() { m.Finalizers = nil })
	w.settle()
	w.want(metav1.ConditionUnknown, "NoNodeYet", "")
}

// TestCrashPointsOfTaints stops the controller before each write, and after each write with the response lost, and restarts it.
// Each run must end like the run without a crash.
func TestCrashPointsOfTaints(t *testing.T) { testenv.CrashPoints(t, 6, taintStory) }

// taintStory runs through the life of a Node's taints, and returns three observed states.
func taintStory(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w := newTaintWorld(t, batch).withNode(true, theirs)
	w.Fail = fail
	tell := func() {
		w.settle()
		c := conditions.Get(w.sm, v1alpha1.NodeTaintedCondition)
		s := fmt.Sprint(w.node.Spec.Taints, w.node.Annotations, w.sm.Status.AppliedNodeTaints, c != nil && c.Status == metav1.ConditionTrue)
		stations = append(stations, s)
	}
	tell()
	w.editTaints(other)
	tell()
	w.editTaints()
	tell()
	return stations, len(w.Writes)
}
