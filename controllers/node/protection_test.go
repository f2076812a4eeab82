// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// written are the writes of one report.
var written = []string{"patch ScheduledMachine status"}

// world is a running machine whose owner's program is java. Its Node and the agent's pod are in the same API server.
// The test plays the parts of the agent, the kubelet and Cluster API.
type world struct {
	*testenv.Fixture
	sm    *v1alpha1.ScheduledMachine
	node  *corev1.Node
	clock *clocktesting.FakePassiveClock
	cache clustercache.ClusterCache
	// unlistable is the error of lists of pods, nil while they work. patience is the timeout of such a list.
	unlistable error
	patience   time.Duration
	recorder   *events.FakeRecorder
	r          *node.Reconciler
	again      time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Fixture: server.Fixture(t), clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), recorder: events.NewFakeRecorder(10),
	}
	ns := server.Namespace(t)
	w.sm = testenv.ScheduledMachine(ns, "box")
	w.sm.Spec.KillIfCommands = []string{"java"}
	w.Create(testenv.Cluster(ns), w.sm)
	machine, err := children.Machine(w.sm, "", time.Now(), nil)
	w.Must(err)
	machine.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.Create(machine)
	if err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reclaim.Namespace}}); !apierrors.IsAlreadyExists(err) {
		w.Must(err)
	}
	w.restart()
	return w
}

// joined returns a machine with a Node and an installation, but without an agent.
func joined(t *testing.T) *world {
	t.Helper()
	w := named(t)
	w.installed("")
	w.Must(w.reconcile()) // The Node gets its label and its ConfigMap.
	w.Writes = nil
	return w
}

// named returns a machine with a Node. The result of the installation is unknown.
func named(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
	w.Create(w.node)
	w.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(w.Context()), w.node) })
	w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.Must(w.Client.Status().Update(t.Context(), w.node))
	m := w.machine()
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: w.node.Name}
	w.Must(w.Client.Status().Update(t.Context(), m))
	return w
}

// protected returns a machine whose agent watches.
func protected(t *testing.T) *world {
	t.Helper()
	w := joined(t)
	w.runAgent("java")
	w.want(metav1.ConditionTrue, "Watching", "detector netlink", written...)
	return w
}

func (w *world) machine() *clusterv1.Machine {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "box-machine"}}
	w.Read(m)
	return m
}

// installed reports the result of the installation on the Cluster, like package installation. An empty failure means
// that it succeeded.
func (w *world) installed(failure string) {
	w.Helper()
	cluster := testenv.Cluster(w.sm.Namespace)
	w.Read(cluster)
	c := metav1.Condition{
		Type: v1alpha1.ReclaimAgentInstalledCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.AgentInstalledReason, Message: failure,
	}
	if failure != "" {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.AgentNotInstalledReason
	}
	conditions.Set(cluster, c)
	w.Must(w.Client.Status().Update(w.Context(), cluster))
}

// runAgent creates the agent's pod, and reports the programs that it watches for.
func (w *world) runAgent(programs ...string) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: reclaim.Namespace, Name: w.node.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "5spot", "app.kubernetes.io/component": "reclaim-agent"},
		},
		Spec: corev1.PodSpec{NodeName: w.node.Name, Containers: []corev1.Container{{Name: "reclaim-agent", Image: "agent"}}},
	}
	w.Create(pod)
	w.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(w.Context()), pod, client.GracePeriodSeconds(0)) })
	w.setReady(true)
	w.say(programs...)
}

func (w *world) say(programs ...string) {
	w.Helper()
	w.Edit(w.node, func() {
		w.node.Annotations = map[string]string{reclaim.StateAnnotation: said("netlink", reclaim.ConfigFor(programs))}
	})
}

// setReady sets the pod's readiness like the kubelet.
func (w *world) setReady(ready bool) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: w.node.Name}}
	w.Read(pod)
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
	if ready {
		c.Status, state = corev1.ConditionTrue, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
	pod.Status.Conditions = []corev1.PodCondition{c}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "reclaim-agent", Image: "agent", State: state}}
	w.Must(w.Client.Status().Update(w.Context(), pod))
}

// restart starts a new manager without in-memory state.
func (w *world) restart() {
	c := w.Recorded(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*corev1.PodList); ok && w.unlistable != nil {
			w.patience = 0
			if until, bounded := ctx.Deadline(); bounded {
				w.patience = time.Until(until)
			}
			return w.unlistable
		}
		return c.List(ctx, list, opts...)
	}})
	if w.cache == nil {
		w.cache = clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, node.NodesWatch, node.PodsWatch, node.ConfigMapsWatch)
	}
	w.r = (&node.Reconciler{
		Clock: w.clock, Reader: c, Actuate: actuate.New(c), ClusterCache: w.cache, Installs: true, Recorder: w.recorder,
		Children: children.Reader{Cached: c, Live: c},
	}).WithoutWatches()
}

func (w *world) reconcile() error {
	w.Helper()
	res, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
	w.again = res.RequeueAfter
	w.Read(w.sm)
	return err
}

// pass advances the clock, and reconciles.
func (w *world) pass(d time.Duration) {
	w.Helper()
	w.clock.SetTime(w.clock.Now().Add(d))
	w.Must(w.reconcile())
}

// want reconciles twice, and checks the condition and the writes. An empty status means no condition.
func (w *world) want(status metav1.ConditionStatus, reason, message string, writes ...string) {
	w.Helper()
	w.Writes = nil
	w.Must(w.reconcile())
	w.Must(w.reconcile())
	c := conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition)
	switch {
	case c == nil && status == "":
	case c == nil:
		w.Errorf("there is no condition, want %s/%s", status, reason)
	case c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message):
		w.Errorf("got %s/%s: %s, want %s/%s: %s", c.Status, c.Reason, c.Message, status, reason, message)
	}
	w.Writes = slices.DeleteFunc(w.Writes, func(write string) bool { return write != written[0] })
	if diff := cmp.Diff(writes, w.Writes); diff != "" && len(writes)+len(w.Writes) > 0 {
		w.Errorf("writes: -want, +got:\n%s", diff)
	}
}

func (w *world) wantEvents(want ...string) {
	w.Helper()
	var got []string
	for len(w.recorder.Events) > 0 {
		got = append(got, strings.Join(strings.Fields(<-w.recorder.Events)[:2], " "))
	}
	if !slices.Equal(got, want) {
		w.Errorf("events %q, want %q", got, want)
	}
}

// TestAJoinIsOneWrite covers the short states while a machine joins.
func TestAJoinIsOneWrite(t *testing.T) {
	w := newWorld(t)
	w.want("", "", "")
	w = joined(t)
	w.want("", "", "")
	if w.again != time.Minute {
		t.Errorf("it is looked at when the patience is over, not after %v", w.again)
	}
	w.pass(30 * time.Second)
	w.runAgent()
	w.want("", "", "")
	w.say("java")
	w.want(metav1.ConditionTrue, "Watching", "Node "+w.node.Name+" looks for the programs of spec.killIfCommands, by detector netlink", written...)
	w.pass(time.Hour)
	w.want(metav1.ConditionTrue, "Watching", "")
	w.wantEvents()
}

func TestAnAgentThatNeverComesIsTold(t *testing.T) {
	w := joined(t)
	w.want("", "", "")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.want(metav1.ConditionFalse, "AgentNotRunning", "has no pod on Node", written...)
	w.wantEvents("Warning OwnerUnprotected")
	w.runAgent("java")
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	w.wantEvents("Normal OwnerProtected")
}

func TestAnAgentThatEndsIsTold(t *testing.T) {
	w := protected(t)
	w.setReady(false)
	w.want(metav1.ConditionTrue, "Watching", "")
	if w.again != 15*time.Second {
		t.Errorf("it is looked at when the patience is over, not after %v", w.again)
	}
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "AgentNotRunning", "its program last exited with code 1", written...)
	w.wantEvents("Warning OwnerUnprotected")
	w.restart()
	w.want(metav1.ConditionFalse, "AgentNotRunning", "")
	w.wantEvents()
	w.setReady(true)
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	w.wantEvents("Normal OwnerProtected")
}

func TestAnAgentThatIsReplacedIsNoNews(t *testing.T) {
	w := protected(t)
	for range 3 {
		w.setReady(false)
		w.want(metav1.ConditionTrue, "Watching", "")
		w.pass(14 * time.Second)
		w.setReady(true)
		w.want(metav1.ConditionTrue, "Watching", "")
	}
	w.wantEvents()
}

func TestChangedPrograms(t *testing.T) {
	w := protected(t)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"idea"} })
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "ConfigurationPending", "looks for other programs", written...)
	w.say("idea")
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"java"} })
	w.want(metav1.ConditionTrue, "Watching", "")
	w.say("java")
	w.want(metav1.ConditionTrue, "Watching", "")
}

func TestARefusedInstallation(t *testing.T) {
	w := joined(t)
	w.installed("applying Namespace: 415: use Kubernetes 1.30")
	w.want("", "", "")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.want(metav1.ConditionFalse, "AgentNotInstalled", "applying Namespace: 415", written...)
	w.wantEvents("Warning OwnerUnprotected")
	w.installed("")
	w.want(metav1.ConditionFalse, "AgentNotInstalled", "")
	w.runAgent("java")
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	w.wantEvents("Normal OwnerProtected")
}

// TestNobodyProtectsAnyMore covers the removal of an obsolete condition.
func TestNobodyProtectsAnyMore(t *testing.T) {
	cases := map[string]func(w *world){
		"ClearedList": func(w *world) { w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil }) },
		"NodeGone":    func(w *world) { w.Must(w.Client.Delete(w.Context(), w.node)) },
		"MachineGone": func(w *world) {
			m := w.machine()
			w.Edit(m, func() { m.Finalizers = nil })
			w.Must(w.Client.Delete(w.Context(), m))
		},
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			w := protected(t)
			end(w)
			w.want(metav1.ConditionTrue, "Watching", "")
			w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
			w.want("", "", "", written...)
			w.wantEvents()
		})
	}
}

// TestWhatIsLeavingIsLeftAlone covers a machine that leaves: the agent has done its work.
func TestWhatIsLeavingIsLeftAlone(t *testing.T) {
	cases := map[string]func(w *world){
		"Asked": func(w *world) { w.Edit(w.node, func() { w.node.Annotations[reclaim.RequestedAnnotation] = "true" }) },
		"Remembered": func(w *world) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"} })
		},
		"KillSwitch": func(w *world) { w.Edit(w.sm, func() { w.sm.Spec.KillSwitch = true }) },
		"Departs":    func(w *world) { w.Must(w.Client.Delete(w.Context(), w.machine())) },
		"Paused": func(w *world) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		},
		"PausedFleet": func(w *world) {
			c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "lab"}}
			w.Edit(c, func() { c.Spec.Paused = new(true) })
		},
	}
	for name, begin := range cases {
		t.Run(name, func(t *testing.T) {
			w := protected(t)
			begin(w)
			w.setReady(false)
			w.want(metav1.ConditionTrue, "Watching", "")
			w.pass(time.Hour)
			w.want(metav1.ConditionTrue, "Watching", "")
			w.wantEvents()
		})
	}
}

// TestADeletedScheduledMachineIsReported covers a safety rail that keeps the Machine of a deleted ScheduledMachine.
func TestADeletedScheduledMachineIsReported(t *testing.T) {
	w := protected(t)
	w.deleteScheduledMachine()
	w.setReady(false)
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "AgentNotRunning", "", written...)
}

// TestWhatCannotBeSeenIsUnknown covers a lost workload cluster.
func TestWhatCannotBeSeenIsUnknown(t *testing.T) {
	w := protected(t)
	w.unlistable = errors.New("no route to host 10.0.0.1:51234")
	look := func() {
		w.Helper()
		if err := w.reconcile(); err == nil && w.again == 0 {
			t.Error("what failed must be tried again")
		}
	}
	look()
	if w.patience <= 0 || w.patience > 10*time.Second {
		t.Errorf("a cluster that never answers keeps a worker for %v, want 10s at most", w.patience)
	}
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	look()
	c := conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition)
	if c.Status != metav1.ConditionUnknown || c.Reason != "AgentStatusUnknown" || strings.Contains(c.Message, "51234") {
		t.Errorf("got %+v", c)
	}
	w.Writes = nil
	look()
	if len(w.Writes) > 0 {
		t.Errorf("it was told already: %v", w.Writes)
	}
	w.unlistable = nil
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	w.wantEvents()
}

func TestAManagerThatStartsLeavesWhatWasReported(t *testing.T) {
	w := protected(t)
	w.setReady(false)
	connected := w.cache
	w.cache = clustercache.NewFakeEmptyClusterCache()
	w.restart()
	w.want(metav1.ConditionTrue, "Watching", "")
	w.pass(time.Hour)
	w.want(metav1.ConditionTrue, "Watching", "")
	w.cache = connected
	w.restart()
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "AgentNotRunning", "", written...)
}

// TestCrashPoints stops the controller before its write, and after it with the response lost. An Event may be recorded
// twice, but never a wrong one.
func TestCrashPoints(t *testing.T) {
	testenv.CrashPoints(t, 2, func(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
		t.Helper()
		w := joined(t)
		w.runAgent("java")
		w.Fail = fail
		settle := func() {
			for range 5 {
				if w.reconcile() != nil {
					w.restart()
				}
				w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
			}
			c := conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition)
			stations = append(stations, string(c.Status)+" "+c.Reason)
		}
		settle()
		w.setReady(false)
		settle()
		return stations, len(w.Writes)
	})
}

// TestAConflictIsWaitedFor covers a write of another controller to the same status.
func TestAConflictIsWaitedFor(t *testing.T) {
	w := joined(t)
	w.runAgent("java")
	w.Fail = func(int) (before, after error) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "scheduledmachines"}, "box", errors.New("x")), nil
	}
	w.Must(w.reconcile())
	w.Fail = nil
	if w.again < 50*time.Millisecond {
		t.Errorf("a newer object is waited for, not only for %v", w.again)
	}
	w.clock.SetTime(w.clock.Now().Add(w.again))
	w.want(metav1.ConditionTrue, "Watching", "", written...)
}

func TestOthersConditionsAreKept(t *testing.T) {
	w := joined(t)
	before := w.sm.DeepCopy()
	conditions.Set(w.sm, metav1.Condition{Type: v1alpha1.HostClaimedCondition, Status: metav1.ConditionTrue, Reason: "Applied"})
	w.Must(w.Client.Status().Patch(t.Context(), w.sm, client.MergeFrom(before)))
	w.runAgent("java")
	w.want(metav1.ConditionTrue, "Watching", "", written...)
	if !conditions.IsTrue(w.sm, v1alpha1.HostClaimedCondition) {
		t.Error("another controller's condition is gone")
	}
}
