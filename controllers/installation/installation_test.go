// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	evictionguard "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

const index = "spec.clusterName"

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// world is one ScheduledMachine with a running Machine. Its Node is in the same API server, and the test plays the part
// of Cluster API. All tests install the agent in the same places, so they are not parallel.
type world struct {
	*testenv.Fixture
	cluster   *clusterv1.Cluster
	sm        *v1alpha1.ScheduledMachine
	node      *corev1.Node
	manifests []*unstructured.Unstructured
	guard     []*unstructured.Unstructured
	recorder  *events.FakeRecorder
	r         *installation.Reconciler
	cache     clustercache.ClusterCache
}

func newWorld(t *testing.T, commands ...string) *world {
	t.Helper()
	w := &world{Fixture: server.Fixture(t), recorder: events.NewFakeRecorder(100), manifests: shipped(t)}
	w.cluster = testenv.Cluster(server.Namespace(t))
	w.createCluster()
	w.sm, w.node = w.member("box", commands...)
	w.clear()
	w.restart()
	return w
}

// createCluster creates the Cluster with a condition of Cluster API.
func (w *world) createCluster() {
	w.Helper()
	w.Create(w.cluster)
	conditions.Set(w.cluster, metav1.Condition{Type: clusterv1.ClusterAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available"})
	w.Must(w.Client.Status().Update(w.Context(), w.cluster))
}

// member creates a ScheduledMachine with a Machine and a Node.
func (w *world) member(name string, commands ...string) (*v1alpha1.ScheduledMachine, *corev1.Node) {
	w.Helper()
	sm := testenv.ScheduledMachine(w.cluster.Namespace, name)
	sm.Spec.KillIfCommands = commands
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}
	w.Create(sm, node)
	machine, err := children.Machine(sm, "", time.Now(), nil)
	w.Must(err)
	machine.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.Create(machine)
	m := w.machine(sm)
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: node.Name}
	w.Must(w.Client.Status().Update(w.Context(), m))
	w.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(w.Context()), node) })
	return sm, node
}

func (w *world) machine(sm *v1alpha1.ScheduledMachine) *clusterv1.Machine {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + "-machine"}}
	if !w.Read(m) {
		w.Fatal("no Machine")
	}
	return m
}

// shipped returns the shipped manifests with another Namespace. An API server without controllers cannot delete a
// Namespace, so each test has its own.
func shipped(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	objects[0].SetName("agent-" + rand.String(8))
	return objects
}

// clear removes the objects of an earlier test.
func (w *world) clear() {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reclaimapi.Namespace}}
	if err := w.Client.Create(w.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	for _, u := range w.manifests[1:] {
		w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), u.DeepCopy())))
	}
	w.Must(w.Client.DeleteAllOf(w.Context(), &corev1.ConfigMap{}, client.InNamespace(reclaimapi.Namespace)))
}

// restart starts a new manager without in-memory state.
func (w *world) restart() {
	c := w.client()
	if w.cache == nil {
		w.cache = clustercache.NewFakeClusterCache(c, client.ObjectKeyFromObject(w.cluster), w.watchNames()...)
	}
	holding, err := manifests.Holding(w.manifests)
	w.Must(err)
	w.r = &installation.Reconciler{
		Clock: clock.RealClock{}, Reader: c, Actuate: actuate.New(c), Children: children.Reader{Cached: c, Live: c},
		ClusterCache: w.cache, Recorder: w.recorder, Manifests: w.manifests, HoldManifests: holding, Guard: w.guard,
	}
}

// watchNames returns the names of all watches. The fake cluster cache does not start a watch that it has already.
func (w *world) watchNames() []string {
	w.Helper()
	guard, err := evictionguard.Objects()
	w.Must(err)
	names := []string{"installation-nodes", "installation-configmaps"}
	for _, u := range slices.Concat(w.manifests, guard) {
		names = append(names, "installation-"+u.GroupVersionKind().GroupKind().String())
	}
	return names
}

func (w *world) reconcile() error {
	w.Helper()
	_, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.cluster)})
	return err
}

// settle reconciles until no writes follow, and returns the writes.
func (w *world) settle() []string {
	w.Helper()
	w.Writes = nil
	for range 40 {
		n := len(w.Writes)
		if err := w.reconcile(); err == nil && len(w.Writes) == n {
			return w.Writes
		}
	}
	w.Fatalf("does not settle: %v", w.Writes)
	return nil
}

// client supports the index, which an API server does not have.
func (w *world) client() client.Client {
	return w.Recorded(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.FieldSelector != nil && strings.HasPrefix(o.FieldSelector.String(), index) {
				o.FieldSelector = nil
			}
			return c.List(ctx, list, o)
		},
	})
}

// optIn gives a Node its ConfigMap and its label, like package node.
func (w *world) optIn(nodes ...*corev1.Node) {
	w.Helper()
	for _, node := range nodes {
		cm := w.configMap(node)
		installed.Claim(cm, client.ObjectKeyFromObject(w.cluster))
		cm.Labels = labels.Merge(cm.Labels, labels.Set(installed.AgentLabels))
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		w.Create(cm)
		w.Edit(node, func() { node.Labels = map[string]string{reclaimapi.AgentLabel: reclaimapi.AgentLabelValue} })
	}
}

// wantInstalled checks the Cluster's condition ReclaimAgentInstalled. An empty status means no condition.
func (w *world) wantInstalled(status metav1.ConditionStatus, message string) {
	w.Helper()
	w.Read(w.cluster)
	c := conditions.Get(w.cluster, v1alpha1.ReclaimAgentInstalledCondition)
	if c == nil && status == "" {
		return
	}
	if c == nil || c.Status != status || !strings.Contains(c.Message, message) {
		w.Errorf("the Cluster says %+v, want %s: %s", c, status, message)
	}
}

// reports is the write of a report on the agent.
var reports = []string{"patch Cluster status"}

// installs are the writes of a first installation, and checks the writes of a manager that has just started. removes
// are the writes after the last user is gone. returns are the writes of a later installation: the Namespace stayed.
var (
	installs = []string{
		"apply Namespace", "apply ValidatingAdmissionPolicy", "apply ValidatingAdmissionPolicyBinding", "apply ValidatingAdmissionPolicy", "apply ValidatingAdmissionPolicyBinding",
		"apply ServiceAccount", "apply ClusterRole", "apply ClusterRoleBinding", "apply Role", "apply RoleBinding", "apply DaemonSet",
	}
	checks  = replaced(installs, "apply ", "update ")
	returns = append([]string{"update Namespace"}, installs[1:]...)
	removes = []string{
		"delete DaemonSet", "delete RoleBinding", "delete Role", "delete ClusterRoleBinding", "delete ClusterRole", "delete ServiceAccount",
		"delete ValidatingAdmissionPolicyBinding", "delete ValidatingAdmissionPolicy", "delete ValidatingAdmissionPolicyBinding", "delete ValidatingAdmissionPolicy",
	}
	optsOut = []string{"patch Node", "delete ConfigMap"}
)

func replaced(writes []string, before, after string) (all []string) {
	for _, write := range writes {
		all = append(all, strings.Replace(write, before, after, 1))
	}
	return all
}

func (w *world) want(reason string, got []string, want ...[]string) {
	w.Helper()
	if diff := cmp.Diff(slices.Concat(want...), got); diff != "" {
		w.Errorf("%s: -want, +got:\n%s", reason, diff)
	}
}

func (w *world) configMap(node *corev1.Node) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: reclaimapi.ConfigMapName(node.Name)}}
}

func (w *world) daemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: "reclaim-agent"}}
}

// wantAgent checks label and ConfigMap of a Node.
func (w *world) wantAgent(node *corev1.Node, want bool) {
	w.Helper()
	found := w.Read(w.configMap(node))
	w.Read(node)
	if labelled := node.Labels[reclaimapi.AgentLabel] == reclaimapi.AgentLabelValue; found != want || labelled != want {
		w.Errorf("Node is labelled: %t; its ConfigMap exists: %t, want %t", labelled, found, want)
	}
}

func TestInstallsInOrderAndSettles(t *testing.T) {
	w := newWorld(t, "java", "idea")
	w.want("the policy is there before the rights, and the rights before the agent", w.settle(), installs, reports)
	w.wantInstalled(metav1.ConditionTrue, "is installed")
	ds := w.daemonSet()
	w.Read(ds)
	if !slices.ContainsFunc(ds.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == v1alpha1.InstallerFieldManager }) {
		t.Errorf("the field manager is missing: %v", ds.ManagedFields)
	}
	w.want("a settled Cluster is not written", w.settle())
}

func TestNothingIsInstalledWithoutUsers(t *testing.T) {
	w := newWorld(t)
	w.want("nothing is installed without a ScheduledMachine that needs it", w.settle())
	w.wantAgent(w.node, false)
}

func TestDriftIsRepaired(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	ds := w.daemonSet()
	w.Edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "evil" })
	w.want("an edit is undone", w.settle(), []string{"update DaemonSet"})
	if w.Read(ds); ds.Spec.Template.Spec.Containers[0].Image == "evil" {
		t.Error("the image is not ours")
	}
	before := ds.DeepCopy()
	ds.Status.DesiredNumberScheduled = 1
	w.Must(w.Client.Status().Patch(t.Context(), ds, client.MergeFrom(before)))
	w.want("a status is no drift", w.settle())
	for _, u := range w.manifests[1:] {
		w.Must(w.Client.Delete(t.Context(), u.DeepCopy()))
		w.want("what was deleted is back", w.settle(), []string{"apply " + u.GetKind()})
	}
}

func TestRestartRepairsWhatHappenedMeanwhile(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	ds := w.daemonSet()
	w.Edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "evil" })
	w.restart()
	w.want("what is not known is written once", w.settle(), checks)
	if w.Read(ds); ds.Spec.Template.Spec.Containers[0].Image == "evil" {
		t.Error("the image is not ours")
	}
}

func TestLastUserLeaves(t *testing.T) {
	w := newWorld(t, "java")
	other, node := w.member("other", "idea")
	w.settle()
	w.optIn(w.node, node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("the other still uses it", w.settle(), optsOut)
	w.wantAgent(w.node, false)
	w.wantAgent(node, true)
	w.Must(w.Client.Delete(t.Context(), other))
	w.want("the last one turns off the light, Nodes first", w.settle(), optsOut, removes, reports)
	w.wantInstalled("", "")
	if !w.Read(w.manifests[0].DeepCopy()) {
		t.Error("the Namespace stays")
	}
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"java"} })
	w.want("and it comes back, into the Namespace that stayed", w.settle(), returns, reports)
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("as often as it has to", w.settle(), optsOut, removes, reports)
}

// TestObjectsOfAnEarlierManagerAreRemoved covers a manager that did not run when the last user disappeared.
func TestObjectsOfAnEarlierManagerAreRemoved(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.optIn(w.node)
	w.Must(w.Client.Delete(t.Context(), w.sm))
	w.restart()
	w.want("what was left behind is found", w.settle(), optsOut, removes, reports)
	w.wantAgent(w.node, false)
}

// TestANodeWithALongName covers a Node whose name leaves no room for the prefix of its ConfigMap.
func TestANodeWithALongName(t *testing.T) {
	w := newWorld(t, "java")
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 253)}}
	w.Create(w.node)
	w.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(w.Context()), w.node) })
	m := w.machine(w.sm)
	m.Status.NodeRef.Name = w.node.Name
	w.Must(w.Client.Status().Update(w.Context(), m))
	w.settle()
	w.optIn(w.node)
	w.want("its ConfigMap stays", w.settle())
	w.Must(w.Client.Delete(w.Context(), w.sm))
	w.restart()
	w.want("what was left behind is found", w.settle(), optsOut, removes, reports)
	w.wantAgent(w.node, false)
}

// TestAClusterThatIsBackIsLookedAt deletes a Cluster that does not use the agent, and restores it from a backup. Its
// workload cluster then has the objects of the time of the backup.
func TestAClusterThatIsBackIsLookedAt(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.optIn(w.node)
	cm := w.configMap(w.node)
	w.Read(cm)
	w.Must(w.Client.Delete(t.Context(), w.sm))
	w.want("no ScheduledMachine needs the agent any more", w.settle(), optsOut, removes, reports)
	w.Must(w.Client.Delete(t.Context(), w.cluster))
	w.want("the Cluster is gone", w.settle())
	cm.ResourceVersion, cm.UID = "", ""
	w.Create(testenv.Cluster(w.cluster.Namespace), cm)
	w.want("what is back there is found", w.settle(), []string{"delete ConfigMap"})
}

func TestLeavingNode(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.optIn(w.node)
	w.Must(w.Client.Delete(t.Context(), w.machine(w.sm)))
	w.want("a Node that leaves is opted out, and the installation waits for the next window", w.settle(), optsOut)
	w.wantAgent(w.node, false)
}

// TestADeletedScheduledMachineKeepsItsAgent covers a safety rail that keeps the Machine of a deleted ScheduledMachine.
func TestADeletedScheduledMachineKeepsItsAgent(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} })
	w.Must(w.Client.Delete(t.Context(), w.sm))
	w.want("its Machine stays", w.settle())
	w.wantAgent(w.node, true)
	w.Must(w.Client.Delete(t.Context(), w.machine(w.sm)))
	w.want("its Machine leaves", w.settle(), optsOut)
	w.Edit(w.sm, func() { w.sm.Finalizers = nil })
	w.want("it was the last one", w.settle(), removes, reports)
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	for i, u := range shipped(t) {
		if i == 0 {
			continue
		}
		t.Run(u.GetKind(), func(t *testing.T) {
			w := newWorld(t, "java")
			theirs := w.manifests[i].DeepCopy()
			theirs.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "somebody"})
			w.Create(theirs)
			w.Writes = nil
			if err := w.reconcile(); err == nil || !strings.Contains(err.Error(), theirs.GetKind()+" "+theirs.GetName()+" exists and is not managed by 5-Spot") {
				t.Errorf("the error must name it: %v", err)
			}
			w.want("what comes after it is not installed", w.Writes, installs[:i], reports)
			w.wantInstalled(metav1.ConditionFalse, "exists and is not managed by 5-Spot")
			if note := <-w.recorder.Events; !strings.HasPrefix(note, "Warning ReclaimAgentBlocked ") {
				t.Errorf("event %q", note)
			}
			version := theirs.GetResourceVersion()
			w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
			w.settle()
			if !w.Read(theirs) || theirs.GetResourceVersion() != version {
				t.Error("it was touched")
			}
		})
	}
}

func TestForeignConfigMapAndLabel(t *testing.T) {
	w := newWorld(t, "java")
	theirs := w.configMap(w.node)
	w.Create(theirs)
	w.Edit(w.node, func() { w.node.Labels = map[string]string{reclaimapi.AgentLabel: reclaimapi.AgentLabelValue} })
	w.settle()
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("what is ours goes", w.settle(), removes, reports)
	w.wantAgent(w.node, true)
}

func TestAForeignInstallationStays(t *testing.T) {
	w := newWorld(t, "java")
	w.manifests = nil
	w.restart()
	w.want("with --agent-install=disabled nothing is installed", w.settle())
	w.wantInstalled("", "")
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("Nodes are cleared", w.settle(), optsOut)
}

// TestAnotherDetector restarts the manager with another --reclaim-agent-detector. The agent's capabilities must change,
// in both directions.
func TestAnotherDetector(t *testing.T) {
	w := newWorld(t, "java")
	listening := w.manifests
	w.settle()
	ds := w.daemonSet()
	w.Read(ds)
	before := ds.Spec.Template.Spec
	var err error
	w.manifests, err = manifests.Polling(listening)
	w.Must(err)
	w.restart()
	w.want("the DaemonSet is written as it is now", w.settle(), checks)
	w.Read(ds)
	pod := ds.Spec.Template.Spec
	agent := pod.Containers[0]
	if pod.HostNetwork || agent.Ports[0].HostPort != 0 || len(agent.SecurityContext.Capabilities.Add) != 0 || *agent.SecurityContext.RunAsUser == 0 {
		t.Errorf("an agent that polls has rights that only the other needs: %v", pod)
	}
	if !slices.Contains(agent.Args, "--detector=poll") {
		t.Errorf("it is not told to poll: %v", agent.Args)
	}
	w.want("and then it is settled", w.settle())

	w.manifests = listening
	w.restart()
	w.settle()
	w.Read(ds)
	if diff := cmp.Diff(before, ds.Spec.Template.Spec); diff != "" {
		t.Errorf("the way back leaves something: -want, +got:\n%s", diff)
	}
}

// cgroupRoot is the environment variable that names the mount for a hold.
var cgroupRoot = corev1.EnvVar{Name: "CGROUP_ROOT", Value: "/host/cgroup"}

// TestTheMountStaysDuringAHold removes the hold from the spec. Without the mount, an agent could not release the pods that
// it holds: for example, for a request that the manager refuses, or has not recorded.
func TestTheMountStaysDuringAHold(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.optIn(w.node)
	cm := w.configMap(w.node)
	w.Read(cm)
	configure := func(c reclaimapi.Config) {
		w.Edit(cm, func() { cm.Data = map[string]string{reclaimapi.ConfigMapKey: c.Text()} })
	}
	mounted := func(reason string, want bool) {
		t.Helper()
		w.settle()
		ds := w.daemonSet()
		if got := w.Read(ds) && slices.Contains(ds.Spec.Template.Spec.Containers[0].Env, cgroupRoot); got != want {
			t.Errorf("%s: mounted: %t", reason, got)
		}
	}
	report := func(s reclaimapi.HoldState) {
		w.Edit(w.node, func() { w.node.Annotations = map[string]string{reclaimapi.HoldAnnotation: s.Text()} })
	}
	report(reclaimapi.HoldState{Pods: 1})
	mounted("an annotation alone, which each kubelet may write, gives no rights", false)
	report(reclaimapi.HoldState{Unavailable: "cgroup v1"})
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaimapi.HoldKill })
	configure(w.sm.Spec.AgentConfig())
	mounted("the machine has a hold", true)
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaimapi.HoldNone })
	mounted("the agent has its old configuration, because of the request on its Node", true)
	w.restart()
	mounted("and also after a restart", true)
	report(reclaimapi.HoldState{Pods: 1})
	configure(w.sm.Spec.AgentConfig())
	mounted("the agent has not released the pods", true)
	w.restart()
	mounted("and also after a restart", true)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	mounted("and also if the list is cleared", true)
	if !w.Read(w.configMap(w.node)) {
		t.Error("the agent that holds pods is removed")
	}
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"java"} })
	report(reclaimapi.HoldState{Unavailable: "cgroup v1"})
	mounted("no pods are held", false)
}

// TestTheHoldIsInstalledWhereItIsUsed adds a hold to a ScheduledMachine, removes it from all, and compares what is
// installed.
func TestTheHoldIsInstalledWhereItIsUsed(t *testing.T) {
	w := newWorld(t, "java")
	second, _ := w.member("second", "idea")
	w.settle()
	stored := func() (all []map[string]any) {
		for _, u := range w.manifests {
			live := u.DeepCopy()
			if !w.Read(live) {
				t.Fatalf("no %s", u.GetKind())
			}
			all = append(all, map[string]any{"spec": live.Object["spec"], "rules": live.Object["rules"], "labels": live.Object["metadata"].(map[string]any)["labels"]})
		}
		return all
	}
	before := stored()
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaimapi.HoldFreeze })
	w.want("policies and DaemonSet are replaced, the others are compared", w.settle(), checks)
	holding, changed := stored(), 0
	for i := range before {
		if !cmp.Equal(before[i], holding[i]) {
			changed++
		}
	}
	if ds := w.daemonSet(); !w.Read(ds) || !slices.Contains(ds.Spec.Template.Spec.Containers[0].Env, cgroupRoot) || changed != 3 {
		t.Errorf("%d objects changed, want two policies and the DaemonSet: %v", changed, ds.Spec.Template.Spec)
	}
	w.Edit(second, func() { second.Spec.ReclaimHold = reclaimapi.HoldKill })
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaimapi.HoldNone })
	w.want("another machine has a hold", w.settle())
	w.restart()
	w.want("a manager that starts compares all", w.settle(), checks)
	if diff := cmp.Diff(holding, stored()); diff != "" {
		t.Errorf("a restart changes the installation: -before, +after:\n%s", diff)
	}
	w.Edit(second, func() { second.Spec.KillIfCommands = nil })
	w.want("a hold without programs is none", w.settle(), checks)
	if diff := cmp.Diff(before, stored()); diff != "" {
		t.Errorf("a hold leaves something behind: -before, +after:\n%s", diff)
	}
}

func TestTwoClustersOfOneServer(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	second := &world{Fixture: server.Fixture(t), recorder: w.recorder, manifests: w.manifests}
	second.cluster = w.cluster.DeepCopy()
	second.cluster.Namespace, second.cluster.ResourceVersion = server.Namespace(t), ""
	second.createCluster()
	second.sm, second.node = second.member("box", "idea")
	second.restart()
	second.want("the newest takes it over", second.settle(), checks, reports)
	w.want("a settled Cluster is not written", w.settle())
	w.optIn(w.node)
	second.optIn(second.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("only its own is removed", w.settle(), optsOut, reports)
	second.want("the other is not touched", second.settle())
	second.wantAgent(second.node, true)
}

func TestEmergencyIsNotDisturbed(t *testing.T) {
	record := v1alpha1.ReclaimRecord{Reason: "process-match: java", RequestedAt: "2026-04-20T21:45:00Z"}
	cases := map[string]func(w *world){
		"Asked": func(w *world) {
			w.Edit(w.node, func() {
				w.node.Annotations = map[string]string{reclaimapi.RequestedAnnotation: reclaimapi.RequestedValue}
			})
		},
		"Remembered": func(w *world) {
			record.Node, record.NodeUID = w.node.Name, w.node.UID
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: record.String()} })
		},
		"MachineGone": func(w *world) {
			record.Node, record.NodeUID = w.node.Name, w.node.UID
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: record.String()} })
			m := w.machine(w.sm)
			w.Edit(m, func() { m.Finalizers = nil })
			w.Must(w.Client.Delete(w.Context(), m))
		},
		"Paused": func(w *world) {
			w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		},
	}
	for name, begin := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "java")
			w.settle()
			w.optIn(w.node)
			begin(w)
			w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
			w.want("nothing is touched until it is over", w.settle(), reports)
			w.Edit(w.sm, func() { w.sm.Annotations = nil })
			w.Edit(w.node, func() { w.node.Annotations = nil })
			w.want("then everything goes", w.settle(), optsOut, removes)
		})
	}
}

// TestANodeIsOfTheManagerOfItsMachine covers a Cluster whose machines have several managers.
func TestANodeIsOfTheManagerOfItsMachine(t *testing.T) {
	w := newWorld(t, "java")
	w.r.WithWatchFilter("mine")
	w.settle()
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("another manager's Node is left alone", w.settle(), reports)
	w.wantAgent(w.node, true)
	w.Edit(w.sm, func() { w.sm.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })
	w.want("it is ours now", w.settle(), optsOut, removes)
}

func TestPausedCluster(t *testing.T) {
	w := newWorld(t, "java")
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = new(true) })
	w.want("a paused Cluster is left alone", w.settle())
}

func TestNotConnectedIsUnknown(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	connected := w.cache
	w.cache = clustercache.NewFakeEmptyClusterCache()
	w.restart()
	w.want("what cannot be seen is unknown, and no error: the connection wakes us", w.settle())
	w.cache = connected
	w.restart()
	w.want("it is made up for", w.settle(), optsOut, removes, reports)
}

// TestCrashPoints stops the controller before each write, and after each write with the response lost, and restarts it.
// Each run must end like the run without a crash.
func TestCrashPoints(t *testing.T) {
	testenv.CrashPoints(t, len(installs)+len(optsOut)+len(removes)+2*len(reports), story)
}

// story runs from the first user to the last, and returns two observed states.
func story(t *testing.T, fail testenv.Fail) (stations []string, writes int) {
	t.Helper()
	w := newWorld(t, "java")
	w.Fail = fail
	tell := func() {
		for range 40 {
			n := len(w.Writes)
			if err := w.reconcile(); err != nil {
				w.restart()
			} else if len(w.Writes) == n {
				break
			}
		}
		var found []string
		for _, u := range w.manifests {
			if u = u.DeepCopy(); w.Read(u) {
				found = append(found, u.GetKind())
			}
		}
		cm := w.configMap(w.node)
		exists := w.Read(cm)
		w.Read(w.node)
		stations = append(stations, fmt.Sprint(found, exists, cm.Data, w.node.Labels))
	}
	tell()
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	tell()
	return stations, len(w.Writes)
}
