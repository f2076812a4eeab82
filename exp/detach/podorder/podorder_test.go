// SPDX-License-Identifier: Apache-2.0

package podorder_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

var noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

// world is a leaving Node with its pods. The test acts as the kubelet and the DaemonSet controller.
type world struct {
	*testenv.Fixture
	ns    string
	node  *corev1.Node
	d     leaving.Departing
	clock *clocktesting.FakePassiveClock
	// gate decides about writes to the workload cluster.
	gate  *actuate.Gate
	cache clustercache.ClusterCache
	step  *podorder.Step
	woken chan struct{}
	// unrecorded allows concurrent deletions.
	unrecorded bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Fixture: server.Fixture(t), ns: server.Namespace(t), clock: clocktesting.NewFakePassiveClock(noon), gate: new(actuate.Gate)}
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
	w.Create(w.node)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), w.node) })
	w.d = leaving.Departing{
		Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "box-machine", UID: "m1"}, Spec: clusterv1.MachineSpec{ClusterName: "lab"}},
		Node:    w.node.Name, Phase: hooksv1.BeforeTermination, Began: noon,
	}
	return w
}

// restart replaces the step with a new one without state.
func (w *world) restart() {
	c := testenv.Serialized(w.Recorded(interceptor.Funcs{}))
	if w.unrecorded {
		c = w.Client
	}
	c = testenv.Gated(w.gate.Transport, c)
	cache := w.cache
	if cache == nil {
		cache = clustercache.NewFakeClusterCache(c, w.d.Cluster())
	}
	desk, woken := leaving.New(w.clock), make(chan struct{}, 10)
	desk.Start(w.Context(), func(types.NamespacedName) { woken <- struct{}{} })
	w.woken = woken
	w.step = &podorder.Step{Clock: w.clock, Actuate: actuate.NewGated(w.gate, c), ClusterCache: cache, Calls: desk}
}

// look calls the step as a reconciler does.
func (w *world) look() leaving.Verdict {
	w.Helper()
	v, err := w.step.Check(w.Context(), w.d, w.clock.Now())
	w.Must(err)
	return v
}

// turn calls the step some time later, and returns its verdict after its call has ended.
func (w *world) turn() leaving.Verdict {
	w.Helper()
	if w.step == nil {
		w.restart()
	}
	w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
	v := w.look()
	if !v.Holds {
		return v
	}
	select {
	case <-w.woken:
	case <-time.After(time.Minute):
		w.Fatalf("no answer: %+v", v)
	}
	return w.look()
}

// daemonSet creates a DaemonSet. Its pods have the priority unless it is empty.
func (w *world) daemonSet(name, priority string) *appsv1.DaemonSet {
	w.Helper()
	labels := map[string]string{"app": name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	if priority != "" {
		ds.Annotations = map[string]string{"node-detacher.variant.run/pod-deletion-priority": priority}
	}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	ds.Spec.Template.Labels, ds.Spec.Template.Spec = labels, *spec()
	w.Create(ds)
	return ds
}

func spec() *corev1.PodSpec {
	return &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
}

// pod creates a pod on the Node, of a DaemonSet or without an owner.
func (w *world) pod(name string, ds *appsv1.DaemonSet, annotations map[string]string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": name}, Annotations: annotations}, Spec: *spec()}
	p.Spec.NodeName = w.node.Name
	p.Spec.TerminationGracePeriodSeconds = new(int64(120))
	if ds != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	}
	w.Create(p)
	return p
}

func priority(n string) map[string]string {
	return map[string]string{v1alpha1.PodDeletionPriorityAnnotation: n}
}

// pods returns the names of the terminating pods on the Node, and of the others.
func (w *world) pods() (going, staying string) {
	w.Helper()
	list := &corev1.PodList{}
	w.Must(w.Client.List(w.Context(), list, client.InNamespace(w.ns), client.MatchingFields{"spec.nodeName": w.node.Name}))
	var g, s []string
	for _, p := range list.Items {
		switch {
		case p.DeletionTimestamp == nil:
			s = append(s, p.Name)
		case *p.DeletionGracePeriodSeconds != 120:
			w.Errorf("%s gets %ds, not its own grace period", p.Name, *p.DeletionGracePeriodSeconds)
			fallthrough
		default:
			g = append(g, p.Name)
		}
	}
	slices.Sort(g)
	slices.Sort(s)
	return strings.Join(g, " "), strings.Join(s, " ")
}

// kubelet ends the terminating pods.
func (w *world) kubelet() {
	w.Helper()
	list := &corev1.PodList{}
	w.Must(w.Client.List(w.Context(), list, client.InNamespace(w.ns), client.MatchingFields{"spec.nodeName": w.node.Name}))
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp != nil {
			w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})))
		}
	}
}

// remake acts as the DaemonSet controller: it creates a missing pod again, unless a taint of the Node prevents it.
func (w *world) remake(name string, ds *appsv1.DaemonSet, tolerates bool) bool {
	w.Helper()
	w.Read(w.node)
	for _, t := range w.node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule && !tolerates && !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			return false
		}
	}
	w.pod(name, ds, nil)
	return true
}

func (w *world) want(going, staying string) {
	w.Helper()
	if g, s := w.pods(); g != going || s != staying {
		w.Errorf("going %q, staying %q, want %q and %q", g, s, going, staying)
	}
}

// TestPodsAreStoppedInOrder lets each write fail, or loses its reply, and restarts the manager each time.
func TestPodsAreStoppedInOrder(t *testing.T) {
	testenv.CrashPoints(t, 4, func(t *testing.T, fail testenv.Fail) ([]string, int) {
		t.Helper()
		w := newWorld(t)
		w.Fail = fail
		byDaemonSet := w.daemonSet("net", "-1")
		plain := w.daemonSet("plain", "")
		w.pod("a", plain, map[string]string{"node-detacher.variant.run/deletion-priority": "10"})
		w.pod("b", plain, priority("5"))
		w.pod("net", byDaemonSet, nil)
		w.pod("stays", plain, nil)
		w.pod("stays-too", nil, nil)
		var seen []string
		for range 20 {
			w.restart()
			v := w.turn()
			going, _ := w.pods()
			if going != "" && (len(seen) == 0 || seen[len(seen)-1] != going) {
				seen = append(seen, going)
			}
			if !v.Holds {
				w.want("", "stays stays-too")
				return seen, len(w.Writes)
			}
			w.kubelet()
		}
		t.Fatal("does not end")
		return nil, 0
	})
}

func TestAGroupIsGoneBeforeTheNext(t *testing.T) {
	w := newWorld(t)
	ds := w.daemonSet("ds", "")
	w.pod("a", ds, priority("10"))
	w.pod("b", ds, priority("10"))
	w.pod("c", ds, priority("5"))
	for range 3 {
		if v := w.turn(); !v.Holds || v.Note != "stopping pods of priority 10: "+w.ns+"/a, "+w.ns+"/b (until "+noon.Add(5*time.Minute).Format(time.RFC3339)+" at the latest)" || !v.Again.Equal(w.clock.Now().Add(3*time.Second)) {
			t.Errorf("got %+v", v)
		}
		w.want("a b", "c")
	}
	if got := slices.DeleteFunc(slices.Clone(w.Writes), func(s string) bool { return s == "delete Pod" }); len(w.Writes) != 3 || len(got) != 1 {
		t.Errorf("what is on its way is not deleted again: %v", w.Writes)
	}
	w.Read(w.node)
	if len(w.node.Annotations) != 1 || !slices.ContainsFunc(w.node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "5spot.finos.org/leaving" && t.Effect == corev1.TaintEffectNoSchedule
	}) {
		t.Errorf("got %v, %v", w.node.Spec.Taints, w.node.Annotations)
	}
	w.kubelet()
	w.turn()
	w.want("c", "")
}

// TestPodsDoNotComeBack: pods come back only if their DaemonSet tolerates everything; the process ends nevertheless.
func TestPodsDoNotComeBack(t *testing.T) {
	w := newWorld(t)
	ds, all := w.daemonSet("ds", "7"), w.daemonSet("all", "8")
	w.pod("ds", ds, nil)
	first := w.pod("all", all, nil)
	w.turn()
	w.want("all", "ds")
	w.kubelet()
	if !w.remake("all", all, true) {
		t.Fatal("it tolerates everything")
	}
	w.turn()
	w.want("ds", "all")
	w.kubelet()
	if w.remake("ds", ds, false) {
		t.Error("nothing keeps it away")
	}
	if v := w.turn(); v.Holds {
		t.Errorf("it never ends: %+v", v)
	}
	w.want("", "all")
	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "all"}}
	if !w.Read(again) || again.UID == first.UID {
		t.Error("it did not come back")
	}
	w.restart() // A restart loses nothing.
	if v := w.turn(); v.Holds {
		t.Errorf("got %+v", v)
	}
	w.want("", "all")
}

// protect adds a budget that holds the first pod. All pods run, because a pod that does not run needs no budget.
func (w *world) protect(pods ...string) {
	w.Helper()
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: pods[0]}}
	pdb.Spec.MinAvailable = new(intstr.FromInt32(1))
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": pods[0]}}
	w.Create(pdb)
	pdb.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: pdb.Generation, DesiredHealthy: 1, ExpectedPods: 1, CurrentHealthy: 1}
	w.Must(w.Client.Status().Update(w.Context(), pdb))
	for _, name := range pods {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		w.Read(p)
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.Must(w.Client.Status().Update(w.Context(), p))
	}
}

// TestABudgetHoldsItsPodOnly: one of two pods of a group is protected.
func TestABudgetHoldsItsPodOnly(t *testing.T) {
	w := newWorld(t)
	w.pod("db", nil, priority("10"))
	w.pod("web", nil, priority("10"))
	w.pod("last", w.daemonSet("last", ""), priority("1"))
	w.protect("db", "web")
	v := w.turn()
	w.want("web", "db last")
	if !v.Holds || !strings.Contains(v.Note, w.ns+"/db cannot be stopped yet: evicting Pod db: Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("got %+v", v)
	}
	w.kubelet()
	again := w.turn()
	if w.turn().Note != again.Note {
		t.Error("the same state gives the same text")
	}
	w.want("", "db last")
	w.clock.SetTime(noon.Add(5 * time.Minute))
	if v := w.look(); v.Holds || !strings.HasPrefix(v.Note, "pods were not stopped within 5m0s: stopping pods of priority 10: "+w.ns+"/db") {
		t.Errorf("got %+v", v)
	}
	w.want("", "db last")
}

// TestUnobservedBudgetDelaysNoOther: the budget of a tenant's pods has not been observed yet. The API server requests a
// retry after ten seconds, and the client waits.
func TestUnobservedBudgetDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	w.unrecorded = true
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "never"}}
	pdb.Spec.Selector, pdb.Spec.MinAvailable = &metav1.LabelSelector{MatchLabels: map[string]string{"held": "true"}}, new(intstr.FromInt32(40))
	w.Create(pdb)
	var held []string
	for i := range 40 {
		held = append(held, fmt.Sprintf("a%02d", i))
		p := w.pod(held[i], nil, priority("1"))
		w.Edit(p, func() { p.Labels["held"] = "true" })
		p.Status.Phase, p.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.Must(w.Client.Status().Update(t.Context(), p))
	}
	w.pod("set", w.daemonSet("ds", ""), priority("1"))
	w.pod("web", nil, priority("1"))
	v := w.turn()
	w.want("set web", strings.Join(held, " "))
	if n := strings.Count(v.Note, "cannot be stopped yet"); n != len(held) {
		t.Errorf("%d of %d are named: %s", n, len(held), v.Note)
	}
}

// TestAPodOfTheSameNameIsAnother: a StatefulSet creates its pod again, first on another Node and then on this one.
func TestAPodOfTheSameNameIsAnother(t *testing.T) {
	w := newWorld(t)
	w.pod("db-0", nil, priority("10"))
	w.pod("web", nil, priority("5"))
	w.turn()
	w.want("db-0", "web")
	w.kubelet()
	here := w.node.Name
	w.node.Name = "elsewhere"
	w.pod("db-0", nil, priority("10"))
	w.node.Name = here
	w.turn()
	w.want("web", "")
	w.kubelet()
	if v := w.turn(); v.Holds || v.Note != "" {
		t.Errorf("got %+v", v)
	}
	elsewhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "db-0"}}
	if !w.Read(elsewhere) || elsewhere.DeletionTimestamp != nil {
		t.Error("a pod on another Node was touched")
	}
	if diff := cmp.Diff([]string{"patch Node", "create Pod eviction", "create Pod eviction"}, w.Writes); diff != "" {
		t.Error(diff)
	}
}

// TestPodsWithoutPriorityCauseNoWrite: pods without a priority, and pods that cannot be stopped, cause no write.
func TestPodsWithoutPriorityCauseNoWrite(t *testing.T) {
	w := newWorld(t)
	w.pod("plain", w.daemonSet("plain", ""), nil)
	mirror := priority("1")
	mirror[corev1.MirrorPodAnnotationKey] = "x"
	w.pod("static", nil, mirror)
	done := w.pod("done", nil, priority("2"))
	done.Status.Phase = corev1.PodSucceeded
	w.Must(w.Client.Status().Update(t.Context(), done))
	if v := w.turn(); v.Holds || v.Note != "" || len(w.Writes) > 0 {
		t.Errorf("got %+v, %v", v, w.Writes)
	}
	w.d.Machine.UID, w.d.Node = "m2", "no-such-node"
	if v := w.turn(); v.Holds || v.Note != "" {
		t.Errorf("without a Node: %+v", v)
	}
	w.d.Machine.UID, w.d.Node = "m3", ""
	if v := w.turn(); v != (leaving.Verdict{}) {
		t.Errorf("with no Node that is believed: %+v", v)
	}
	w.d.Machine.UID, w.d.Node, w.d.Phase = "m4", w.node.Name, hooksv1.BeforeDrain
	if v := w.turn(); v != (leaving.Verdict{}) {
		t.Errorf("before the drain: %+v", v)
	}
}

// TestAConflictIsTriedAgain: no pod is deleted before the record is written.
func TestAConflictIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.pod("a", w.daemonSet("ds", ""), priority("1"))
	w.Fail = func(n int) (before, after error) {
		if n == 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, w.node.Name, nil), nil
		}
		return nil, nil
	}
	if v := w.turn(); !v.Holds || !strings.HasPrefix(v.Note, "tainting Node: ") {
		t.Errorf("got %+v", v)
	}
	w.want("", "a")
	w.turn()
	w.want("a", "")
}

func TestAClusterThatIsNotConnectedIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.cache = clustercache.NewFakeEmptyClusterCache()
	if v := w.turn(); !v.Holds || !strings.Contains(v.Note, "connection to the workload cluster is down") {
		t.Errorf("got %+v", v)
	}
}

func TestAPauseStopsNoPod(t *testing.T) {
	w, out := newWorld(t), &bytes.Buffer{}
	w.gate = &actuate.Gate{Paused: true, Log: audit.New(out)}
	w.pod("a", w.daemonSet("ds", ""), priority("1"))
	if v := w.turn(); !v.Holds {
		t.Errorf("got %+v", v)
	}
	w.want("", "a")
	if w.Read(w.node); len(w.Writes) > 0 || len(w.node.Annotations) > 0 {
		t.Errorf("written %v", w.Writes)
	}
	if text := out.String(); !strings.Contains(text, `"kind":"NodePatch"`) || !strings.Contains(text, `"reason":"StopPods"`) {
		t.Errorf("told %s", text)
	}
}

func TestInvalidPriorityAffectsNoOtherPod(t *testing.T) {
	w := newWorld(t)
	ds := w.daemonSet("ds", "soon")
	w.pod("by-set", ds, nil)
	w.pod("bad", nil, priority("high"))
	w.pod("good", ds, priority("1"))
	v := w.turn()
	w.want("good", "bad by-set")
	if !v.Holds || !strings.Contains(v.Note, `/bad is left alone: its priority "high"`) || !strings.Contains(v.Note, `/by-set is left alone: its priority "soon"`) {
		t.Errorf("got %+v", v)
	}
	w.kubelet()
	if v := w.turn(); v.Holds || !strings.Contains(v.Note, `"high"`) || !strings.Contains(v.Note, `"soon"`) {
		t.Errorf("got %+v", v)
	}
}
