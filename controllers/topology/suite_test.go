// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/topology"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

const index = "spec.clusterName"

var noon = time.Date(2025, time.January, 20, 12, 0, 0, 0, time.UTC)

// world is one Cluster with a topology, in its own namespace. Only the reconciler under test runs.
type world struct {
	*testenv.Fixture
	cluster  *clusterv1.Cluster
	recorder *events.FakeRecorder
	r        *topology.Reconciler
}

// newWorld creates a Cluster whose topology has the variable with these items; without items it has no variable.
func newWorld(t *testing.T, items ...string) *world {
	t.Helper()
	w := &world{Fixture: server.Fixture(t), recorder: events.NewFakeRecorder(100)}
	w.cluster = testenv.Cluster(server.Namespace(t))
	w.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	w.cluster.Spec.Topology.ClassRef.Name, w.cluster.Spec.Topology.Version = "desks", "v1.36.3"
	if items != nil {
		w.cluster.Spec.Topology.Variables = variables(list(items...))
	}
	w.Create(w.cluster)
	conditions.Set(w.cluster, metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionTrue, Reason: "Available"})
	w.Must(w.Client.Status().Update(t.Context(), w.cluster))
	w.r = w.reconciler()
	return w
}

func variables(value string) []clusterv1.ClusterVariable {
	return []clusterv1.ClusterVariable{{Name: variable.Name, Value: apiextensionsv1.JSON{Raw: []byte(value)}}}
}

func list(items ...string) string { return "[" + strings.Join(items, ",") + "]" }

// item returns an item with a name, hours, and more fields.
func item(name, hours string, more ...string) string {
	return fmt.Sprintf(`{"name":%q,"schedule":{"daysOfWeek":["mon-fri"],"hoursOfDay":[%q]},`+
		`"bootstrapTemplateRef":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","name":"desks"},`+
		`"infrastructureTemplateRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachineTemplate","name":"desks"}%s}`,
		name, hours, strings.Join(append([]string{""}, more...), ","))
}

func (w *world) reconciler() *topology.Reconciler {
	c := w.Recorded(interceptor.Funcs{List: byIndex})
	return &topology.Reconciler{
		Clock: clocktesting.NewFakePassiveClock(noon), Reader: c, Live: w.Client,
		Actuate: actuate.New(c).As(v1alpha1.TopologyFieldManager), Recorder: w.recorder,
	}
}

// byIndex lists like a cache with the index.
func byIndex(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	cluster, indexed := "", false
	if o.FieldSelector != nil {
		cluster, indexed = o.FieldSelector.RequiresExactMatch(index)
		o.FieldSelector = nil
	}
	if err := c.List(ctx, into, o); err != nil || !indexed {
		return err
	}
	machines := into.(*v1alpha1.ScheduledMachineList)
	machines.Items = slices.DeleteFunc(machines.Items, func(sm v1alpha1.ScheduledMachine) bool { return sm.Spec.ClusterName != cluster })
	return nil
}

// try reconciles once and reads the Cluster again.
func (w *world) try() (ctrl.Result, error) {
	w.Helper()
	res, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.cluster)})
	w.Read(w.cluster)
	return res, err
}

func (w *world) reconcile() {
	w.Helper()
	_, err := w.try()
	w.Must(err)
}

// setItems changes the items of the variable, like a person.
func (w *world) setItems(items ...string) {
	w.Helper()
	w.Edit(w.cluster, func() { w.cluster.Spec.Topology.Variables = variables(list(items...)) })
}

// machines returns the names of the ScheduledMachines of the namespace, without the Cluster's name, and their hours.
// One that is being deleted has a minus.
func (w *world) machines() string {
	w.Helper()
	list := &v1alpha1.ScheduledMachineList{}
	w.Must(w.Client.List(w.Context(), list, client.InNamespace(w.cluster.Namespace)))
	var found []string
	for _, sm := range list.Items {
		name := strings.TrimPrefix(sm.Name, "lab-") + ":" + strings.Join(sm.Spec.Schedule.HoursOfDay, ",")
		if !sm.DeletionTimestamp.IsZero() {
			name = "-" + name
		}
		found = append(found, name)
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// machine reads a ScheduledMachine, which must exist.
func (w *world) machine(name string) *v1alpha1.ScheduledMachine {
	w.Helper()
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "lab-" + name}}
	if !w.Read(sm) {
		w.Fatalf("no ScheduledMachine %s; there are %s", sm.Name, w.machines())
	}
	return sm
}

// hold adds the finalizer of package scheduledmachine to a ScheduledMachine; letGo removes it.
func (w *world) hold(name string) {
	w.Helper()
	sm := w.machine(name)
	w.Edit(sm, func() { sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} })
}

func (w *world) letGo(name string) {
	w.Helper()
	sm := w.machine(name)
	w.Edit(sm, func() { sm.Finalizers = nil })
}

// want checks the ScheduledMachines and the condition.
func (w *world) want(machines, reason, message string) {
	w.Helper()
	if got := w.machines(); got != machines {
		w.Fatalf("there are %q, want %q", got, machines)
	}
	c := conditions.Get(w.cluster, v1alpha1.ScheduledMachinesAppliedCondition)
	if c == nil {
		c = &metav1.Condition{}
	}
	if c.Reason != reason || !strings.Contains(c.Message, message) || (c.Status == metav1.ConditionTrue) != (reason == v1alpha1.VariableAppliedReason) {
		w.Fatalf("condition %s/%s: %q, want %s: %q", c.Status, c.Reason, c.Message, reason, message)
	}
}

// conditionText returns reason and message of the Cluster's condition.
func (w *world) conditionText() string {
	return conditions.GetReason(w.cluster, v1alpha1.ScheduledMachinesAppliedCondition) + ": " +
		conditions.GetMessage(w.cluster, v1alpha1.ScheduledMachinesAppliedCondition)
}

// wantQuiet checks that another reconcile writes nothing.
func (w *world) wantQuiet() {
	w.Helper()
	w.Writes = nil
	for range 3 {
		_, _ = w.try()
	}
	if len(w.Writes) > 0 {
		w.Errorf("settled, and yet: %v", w.Writes)
	}
}

// settle reconciles until no immediate retry is requested. After a failure it uses a new reconciler, like a restarted
// manager.
func (w *world) settle() {
	w.Helper()
	for range 12 {
		w.r = w.reconciler()
		res, err := w.try()
		if err == nil && res.RequeueAfter == 0 {
			return
		}
		if err != nil && !apierrors.IsInternalError(err) {
			w.Fatal(err)
		}
	}
	w.Fatal("does not settle")
}
