// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// five is the end of the window on a Monday.
var five = time.Date(2026, time.March, 2, 17, 0, 0, 0, time.UTC)

// departureWorld is a running machine whose Node is in the same API server. Only the reconciler under test runs. The test plays
// the parts of Cluster API and the kubelet.
type departureWorld struct {
	*testenv.Fixture
	sm      *v1alpha1.ScheduledMachine
	machine *clusterv1.Machine
	node    *corev1.Node
	clock   *clocktesting.FakePassiveClock
	gate    *actuate.Gate
	// late is the old version of the Node that a stale cache shows.
	late *corev1.Node
	// lost is a ClusterCache without a connection, nil while there is one.
	lost clustercache.ClusterCache
}

func newDepartureWorld(t *testing.T) *departureWorld {
	t.Helper()
	w := &departureWorld{Fixture: server.Fixture(t), clock: clocktesting.NewFakePassiveClock(five.Add(-time.Hour)), gate: new(actuate.Gate)}
	ns := server.Namespace(t)
	w.sm = testenv.ScheduledMachine(ns, "box")
	w.sm.Spec.Schedule.DaysOfWeek, w.sm.Spec.Schedule.HoursOfDay, w.sm.Spec.Schedule.Timezone = []string{"mon-fri"}, []string{"9-16"}, "UTC"
	w.Create(testenv.Cluster(ns), w.sm)
	desired, err := children.Machine(w.sm, "", time.Now(), nil)
	w.Must(err)
	desired.SetFinalizers([]string{clusterv1.MachineFinalizer})
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
	w.Create(desired, w.node)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), w.node) })
	w.node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
	}
	w.Must(w.Client.Status().Update(t.Context(), w.node))
	w.machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: desired.GetName()}}
	w.status(func(s *clusterv1.MachineStatus) { s.NodeRef.Name = w.node.Name })
	return w
}

// status writes the Machine's status like Cluster API.
func (w *departureWorld) status(change func(*clusterv1.MachineStatus)) {
	w.Helper()
	w.Read(w.machine)
	change(&w.machine.Status)
	w.Must(w.Client.Status().Update(w.Context(), w.machine))
}

// reconcile runs a new reconciler once, as after a restart.
func (w *departureWorld) reconcile() ctrl.Result {
	w.Helper()
	c := testenv.Gated(w.gate.Transport, w.client())
	cache := w.lost
	if cache == nil {
		cache = clustercache.NewFakeClusterCache(c, client.ObjectKey{Namespace: w.sm.Namespace, Name: "lab"}, node.NodesWatch)
	}
	r := (&node.Reconciler{
		Clock: w.clock, Reader: c, Actuate: actuate.NewGated(w.gate, c), ClusterCache: cache,
		Children: children.Reader{Cached: c, Live: c}, Lead: 10 * time.Minute,
	}).WithoutWatches()
	res, err := r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
	w.Must(err)
	return res
}

// client reads Nodes like the cache.
func (w *departureWorld) client() client.Client {
	return w.Recorded(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if node, ok := obj.(*corev1.Node); ok && err == nil {
				if w.late != nil { // The first read is the cache's, the second is live.
					w.late.DeepCopyInto(node)
					w.late = nil
					return nil
				}
				trimmed, err := workload.TrimNode(node.DeepCopy())
				if err != nil {
					return err
				}
				trimmed.(*corev1.Node).DeepCopyInto(node)
			}
			return err
		},
	})
}

// settle reconciles until no writes follow, at least three times.
func (w *departureWorld) settle() ctrl.Result {
	w.Helper()
	for range 10 {
		n := len(w.Writes)
		w.reconcile()
		if res := w.reconcile(); len(w.Writes) == n {
			w.Read(w.node)
			return res
		}
	}
	w.Fatalf("does not settle: %v", w.Writes)
	return ctrl.Result{}
}

// heartbeat writes the Node's status like the kubelet.
func (w *departureWorld) heartbeat() {
	w.Helper()
	w.Read(w.node)
	before := w.node.DeepCopy()
	for i := range w.node.Status.Conditions {
		if c := &w.node.Status.Conditions[i]; c.Type == corev1.NodeReady || c.Type == corev1.NodeMemoryPressure {
			c.LastHeartbeatTime = metav1.NewTime(w.clock.Now())
		}
	}
	w.Must(w.Client.Status().Patch(w.Context(), w.node, client.StrategicMergeFrom(before)))
}

// want checks the departure conditions of the Node, and that the kubelet's conditions remain.
func (w *departureWorld) want(says ...string) {
	w.Helper()
	w.Read(w.node)
	var got []string
	for _, c := range w.node.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady, corev1.NodeMemoryPressure:
			got = append(got, string(c.Type)+" "+c.Reason)
		default:
			got = append(got, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
			if c.LastTransitionTime.IsZero() || c.Message == "" {
				w.Errorf("%s says neither when nor why: %+v", c.Type, c)
			}
		}
	}
	slices.Sort(got)
	want := append([]string{"MemoryPressure KubeletHasSufficientMemory", "Ready KubeletReady"}, says...)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("conditions: -want, +got:\n%s", diff)
	}
}

const (
	planned  = "MaintenancePlanned=True ScheduledMachineWindowClosing"
	draining = "DrainInProgress=True ScheduledMachineDeparting"
	over     = "DrainInProgress=False ScheduledMachineDrained"
	drained  = "Drained=True ScheduledMachineDrained"
)

// admit starts a departure like package scheduledmachine.
func (w *departureWorld) admit(reason v1alpha1.DepartureReason) {
	w.Helper()
	d := v1alpha1.NewDeparture(reason, w.clock.Now(), "a1")
	d.MachineUID = w.machine.UID
	w.Edit(w.machine, func() { metav1.SetMetaDataAnnotation(&w.machine.ObjectMeta, v1alpha1.DepartureAnnotation, d.String()) })
}

// drains plays the part of Cluster API, which starts to drain, or proceeds to the hooks after the drain.
func (w *departureWorld) drains(goesOn, ended bool) {
	w.Helper()
	w.status(func(s *clusterv1.MachineStatus) {
		s.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.NewTime(w.clock.Now())}
		if goesOn {
			s.Deletion.WaitForPreTerminateHookStartTime = metav1.NewTime(w.clock.Now())
		}
		markDrain(w.machine, ended)
	})
}

// markDrain sets the condition that reports, like Cluster API's, whether a drain has succeeded.
func markDrain(m *clusterv1.Machine, ended bool) {
	if ended {
		v1beta1conditions.MarkTrue(m, clusterv1.DrainingSucceededV1Beta1Condition)
	} else {
		v1beta1conditions.MarkFalse(m, clusterv1.DrainingSucceededV1Beta1Condition, clusterv1.DrainingV1Beta1Reason, clusterv1.ConditionSeverityInfo, "")
	}
}

// TestADepartureIsSaidInThreeWrites checks that a departure costs three writes, whatever the kubelet writes and however
// often the manager restarts.
func TestADepartureIsSaidInThreeWrites(t *testing.T) {
	w := newDepartureWorld(t)
	if res := w.settle(); res.RequeueAfter != 50*time.Minute {
		t.Errorf("it looks again in %s", res.RequeueAfter)
	}
	w.want()
	w.clock.SetTime(five.Add(-10 * time.Minute))
	if res := w.settle(); !res.IsZero() {
		t.Errorf("it looks again: %v", res)
	}
	w.want(planned)
	w.heartbeat()
	w.clock.SetTime(five.Add(time.Minute)) // The departure is deferred.
	if res := w.settle(); res.RequeueAfter != 16*time.Hour-time.Minute {
		t.Errorf("it looks again in %s, want when the next window opens", res.RequeueAfter)
	}
	w.want(planned)
	w.admit(v1alpha1.WindowClosed)
	w.heartbeat()
	w.settle()
	w.want(planned, draining)
	w.Must(w.Client.Delete(t.Context(), w.machine))
	w.drains(false, false)
	w.settle()
	w.want(planned, draining)
	w.drains(true, true)
	w.heartbeat()
	w.settle()
	w.want(planned, over, drained)
	if diff := cmp.Diff([]string{"patch Node status", "patch Node status", "patch Node status"}, w.Writes); diff != "" {
		t.Error(diff)
	}
}

// TestADrainThatWasGivenUpIsNotSaidToHaveEnded covers a drain that timed out: pods may remain.
func TestADrainThatWasGivenUpIsNotSaidToHaveEnded(t *testing.T) {
	w := newDepartureWorld(t)
	w.clock.SetTime(five)
	w.admit(v1alpha1.WindowClosed)
	w.Must(w.Client.Delete(t.Context(), w.machine))
	w.drains(true, false)
	w.settle()
	w.want(draining)
}

// TestAMachineThatWaitsUntilItsNextWindowPlansNothing checks that the announcement is removed when the next window
// opens.
func TestAMachineThatWaitsUntilItsNextWindowPlansNothing(t *testing.T) {
	w := newDepartureWorld(t)
	w.clock.SetTime(five.Add(-time.Minute))
	w.settle()
	w.clock.SetTime(five)
	res := w.settle()
	w.want(planned)
	w.clock.SetTime(five.Add(res.RequeueAfter))
	w.settle()
	w.want()
}

// TestADepartureThatIsCancelledIsTakenBack checks that its conditions and the announcement are removed. Conditions of
// others stay.
func TestADepartureThatIsCancelledIsTakenBack(t *testing.T) {
	w := newDepartureWorld(t)
	w.node.Status.Conditions = append(w.node.Status.Conditions, corev1.NodeCondition{
		Type: "MaintenanceInProgress", Status: corev1.ConditionTrue, Reason: "NewDisk", Message: "on Friday", LastTransitionTime: metav1.Now(),
	})
	w.Must(w.Client.Status().Update(t.Context(), w.node))
	const theirs = "MaintenanceInProgress=True NewDisk"
	w.clock.SetTime(five.Add(-time.Minute))
	w.settle()
	w.want(theirs, planned)
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.HoursOfDay = []string{"9-19"} })
	w.settle()
	w.want(theirs)
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.HoursOfDay = []string{"9-16"} })
	w.settle()
	w.want(theirs, planned)
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.Enabled = new(false) })
	w.settle()
	w.want(theirs) // The machine stays.
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.Enabled = new(true) })
	w.settle()
	w.clock.SetTime(five)
	w.admit(v1alpha1.WindowClosed)
	w.settle()
	w.want(theirs, planned, draining)
	w.Edit(w.sm, func() { w.sm.Spec.Schedule.HoursOfDay = []string{"9-19"} })
	w.Edit(w.machine, func() { delete(w.machine.Annotations, v1alpha1.DepartureAnnotation) })
	w.settle()
	w.want(theirs)
	if len(w.Writes) != 7 {
		t.Errorf("written %v", w.Writes)
	}
}

func TestAnUrgentDepartureWritesNoNode(t *testing.T) {
	for name, take := range map[string]func(w *departureWorld){
		"Emergency": func(w *departureWorld) {
			w.Edit(w.sm, func() {
				metav1.SetMetaDataAnnotation(&w.sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, v1alpha1.RecalledRequest(w.node.Name, five).String())
			})
		},
		"Recorded":   func(w *departureWorld) { w.admit(v1alpha1.ReclaimedByOwner) },
		"KillSwitch": func(w *departureWorld) { w.Edit(w.sm, func() { w.sm.Spec.KillSwitch = true }) },
		"Cluster":    func(w *departureWorld) { w.admit(v1alpha1.ClusterDeleted) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDepartureWorld(t)
			w.clock.SetTime(five.Add(-time.Minute))
			take(w)
			w.Must(w.Client.Delete(t.Context(), w.machine))
			w.settle()
			w.drains(true, true)
			w.settle()
			w.want()
			if len(w.Writes) > 0 {
				t.Errorf("written %v", w.Writes)
			}
		})
	}
}

// TestACacheThatIsLateCostsNoWrite uses a cache that shows the Node from before the write.
func TestACacheThatIsLateCostsNoWrite(t *testing.T) {
	w := newDepartureWorld(t)
	was := w.node.DeepCopy()
	w.clock.SetTime(five.Add(-time.Minute))
	w.settle()
	w.late = was
	w.reconcile()
	w.want(planned)
	if len(w.Writes) != 1 {
		t.Errorf("written %v", w.Writes)
	}
}

// TestAnotherNodeOfTheNameIsNotWritten replaces the Node after the first read.
func TestAnotherNodeOfTheNameIsNotWritten(t *testing.T) {
	w := newDepartureWorld(t)
	w.late = w.node.DeepCopy()
	w.late.UID = "earlier"
	w.clock.SetTime(five.Add(-time.Minute))
	w.reconcile()
	w.want()
	w.Read(w.node)
	other := w.node.DeepCopy()
	other.UID = "earlier"
	before := other.DeepCopy()
	other.Status.Conditions = append(other.Status.Conditions, corev1.NodeCondition{Type: "Drained", Status: corev1.ConditionTrue})
	if err := actuate.New(w.Client).PatchNodeConditions(t.Context(), other, before); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	w.want()
}

func TestAMachineWithoutNodeIsLeftAlone(t *testing.T) {
	w := newDepartureWorld(t)
	w.clock.SetTime(five.Add(-time.Minute))
	w.lost = clustercache.NewFakeEmptyClusterCache()
	w.reconcile()
	w.lost = nil
	w.status(func(s *clusterv1.MachineStatus) { s.NodeRef.Name = "no-such-node" })
	w.reconcile()
	w.status(func(s *clusterv1.MachineStatus) { s.NodeRef = clusterv1.MachineNodeReference{} })
	w.reconcile()
	w.want()
	if len(w.Writes) > 0 {
		t.Errorf("written %v", w.Writes)
	}
}

// TestAPauseSaysNothing covers a pause of the machine, of its Cluster, and of the actuation.
func TestAPauseSaysNothing(t *testing.T) {
	w := newDepartureWorld(t)
	w.clock.SetTime(five.Add(-time.Minute))
	w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	w.reconcile()
	w.want()
	w.Edit(w.sm, func() { w.sm.Annotations = nil })
	w.gate = &actuate.Gate{Paused: true}
	for range 3 {
		if res := w.reconcile(); !res.IsZero() {
			t.Errorf("it is tried again: %v", res)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		w.heartbeat()
	}
	w.want()
	if len(w.Writes) > 0 {
		t.Errorf("written %v", w.Writes)
	}
	w.gate = new(actuate.Gate)
	w.settle()
	w.want(planned)
}

func TestMachineUpdatesThatEnqueue(t *testing.T) {
	t.Parallel()
	machine := &clusterv1.Machine{}
	admitted, drains := machine.DeepCopy(), machine.DeepCopy()
	admitted.Annotations = map[string]string{v1alpha1.DepartureAnnotation: "{}"}
	drains.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.Now()}
	done, gaveUp := drains.DeepCopy(), drains.DeepCopy()
	markDrain(done, true)
	gaveUp.Status.Deletion.WaitForNodeVolumeDetachStartTime = metav1.Now()
	for name, tc := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"Admitted": {machine, admitted, true},
		"Drains":   {machine, drains, false},
		"Drained":  {drains, done, true},
		"GaveUp":   {drains, gaveUp, false},
	} {
		if got := node.DepartureProgresses().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
