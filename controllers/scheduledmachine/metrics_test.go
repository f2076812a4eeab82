// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
)

// lag returns how often the lag was measured so far, and its sum in seconds.
func lag(t *testing.T) (count uint64, sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(scheduledmachine.TransitionLag)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	return h.GetSampleCount(), h.GetSampleSum()
}

// TestLagOfAnEdgeIsMeasuredOnce checks that several actions at one edge give one measurement. A departure whose
// provider hangs has actions without end; an objective needs one measurement.
func TestLagOfAnEdgeIsMeasuredOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.settle()
	count, sum := lag(t)
	w.running() // an hour after monday, which is a second before the window
	if n, s := lag(t); n != count+1 || s != sum+3599 {
		t.Errorf("joined: %d measurements, %v s, want one of 3599 s", n-count, s-sum)
	}
	w.clock.SetTime(monday.Add(9*time.Hour + 2*time.Second)) // one second late
	_, sum = lag(t)
	for range 5 {
		w.settle() // The infrastructure hangs.
		w.reconcile()
	}
	if n, s := lag(t); n != count+2 || s != sum+1 {
		t.Errorf("leaving: %d measurements, %v s, want one more of 1 s", n-count, s-sum)
	}
	w.gone()
	w.settle()
	if n, _ := lag(t); n != count+2 {
		t.Errorf("gone: %d measurements", n-count)
	}
}

// TestLagOfNothingElseIsMeasured checks that a person's request is not measured: it is no edge of a window.
func TestLagOfNothingElseIsMeasured(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	count, _ := lag(t)
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20"} })
	w.settle()
	if n, _ := lag(t); n != count {
		t.Errorf("%d measurements", n-count)
	}
}

func TestTransitionsAreCounted(t *testing.T) {
	w := newWorld(t, nil)
	joined := scheduledmachine.Transitions.WithLabelValues("Inactive", "Active")
	before, judged, killed := testutil.ToFloat64(joined), testutil.ToFloat64(scheduledmachine.Evaluations), testutil.ToFloat64(scheduledmachine.KillSwitchActivations)
	w.settle()
	w.running()
	if n := testutil.ToFloat64(joined); n != before+1 {
		t.Errorf("%v changes from Inactive to Active", n-before)
	}
	if n := testutil.ToFloat64(scheduledmachine.Evaluations); n <= judged {
		t.Errorf("%v judgements", n-judged)
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
	w.settle()
	w.gone()
	w.settle()
	if n := testutil.ToFloat64(scheduledmachine.KillSwitchActivations); n != killed+1 {
		t.Errorf("%v kill switches, phase %s", n-killed, w.sm.Status.Phase)
	}
}

// fleetOf returns a cache with one running machine, and a new one in another shard.
func fleetOf(t *testing.T) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	running, another := &v1alpha1.ScheduledMachine{}, &v1alpha1.ScheduledMachine{}
	running.Namespace, running.Name, running.Spec.ClusterName = "farm", "a", "real"
	running.Labels = map[string]string{clusterv1.WatchLabel: "mine"}
	running.Status.Phase = v1alpha1.PhaseActive
	running.Status.Conditions = []metav1.Condition{
		{Type: "MachineReady", Status: metav1.ConditionTrue, Reason: "NodeReady"},
		{Type: "WorkloadClusterReachable", Status: metav1.ConditionFalse, Reason: "NotConnected"},
	}
	another.Namespace, another.Name, another.Spec.ClusterName = "farm", "b", "real"
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(running, another).Build()
}

func TestTheFleetIsCountedOnce(t *testing.T) {
	elected := make(chan struct{})
	close(elected)
	const conditions = `# HELP fivespot_machine_conditions ScheduledMachines by the status and reason of each condition, namespace and Cluster. Reported by the leader only.
# TYPE fivespot_machine_conditions gauge
fivespot_machine_conditions{cluster="real",condition="MachineReady",namespace="farm",reason="NodeReady",status="True"} 1
fivespot_machine_conditions{cluster="real",condition="WorkloadClusterReachable",namespace="farm",reason="NotConnected",status="False"} 1
`
	const phases = `# HELP fivespot_machines ScheduledMachines by phase, namespace and Cluster. Reported by the leader only.
# TYPE fivespot_machines gauge
fivespot_machines{cluster="real",namespace="farm",phase="Active"} 1
`
	cases := map[string]struct {
		reason      string
		watchFilter string
		elected     <-chan struct{}
		want        string
	}{
		"Leader":  {"Whoever acts counts.", "", elected, conditions + phases + `fivespot_machines{cluster="real",namespace="farm",phase="Pending"} 1` + "\n"},
		"Standby": {"The sum of all replicas would be twice the fleet.", "", make(chan struct{}), ""},
		"Shard":   {"The sum of all shards would be the fleet as often as there are shards.", "mine", elected, conditions + phases},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			collector := scheduledmachine.Fleet(fleetOf(t), clock.RealClock{}, tc.watchFilter, tc.elected)
			if err := testutil.CollectAndCompare(collector, strings.NewReader(tc.want), "fivespot_machines", "fivespot_machine_conditions"); err != nil {
				t.Errorf("%s\n%v", tc.reason, err)
			}
			if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) > 0 {
				t.Errorf("%v, %v", problems, err)
			}
		})
	}
}

// options records the options of lists.
type options struct {
	client.Reader
	list client.ListOptions
}

func (o *options) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o.list.ApplyOptions(opts)
	return o.Reader.List(ctx, list, opts...)
}

func TestTheFleetIsNotCopiedToBeCounted(t *testing.T) {
	elected := make(chan struct{})
	close(elected)
	reader := &options{Reader: fleetOf(t)}
	registry := prometheus.NewRegistry()
	registry.MustRegister(scheduledmachine.Fleet(reader, clock.RealClock{}, "", elected))
	if _, err := registry.Gather(); err != nil || reader.list.UnsafeDisableDeepCopy == nil || !*reader.list.UnsafeDisableDeepCopy {
		t.Errorf("%v: listed with %+v", err, reader.list)
	}
}

func TestAClusterWakesItsMachinesOnlyWhenTheyReadTheChange(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*clusterv1.Cluster)
		want   bool
	}{
		"Workers":    {"Every Machine that joins changes these counts.", func(c *clusterv1.Cluster) { c.Status.Workers = &clusterv1.WorkersStatus{Replicas: new(int32(7))} }, false},
		"Conditions": {"Nobody reads them.", func(c *clusterv1.Cluster) { c.Status.Conditions = []metav1.Condition{{Type: "WorkersAvailable"}} }, false},
		"Spec":       {"It may be paused now, or have another version.", func(c *clusterv1.Cluster) { c.Generation++ }, true},
		"Label":      {"It may be served by another manager.", func(c *clusterv1.Cluster) { c.Labels = map[string]string{clusterv1.WatchLabel: "mine"} }, true},
		"Annotation": {"It may be paused in another way.", func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, true},
		"Another":    {"One of the same name is another owner.", func(c *clusterv1.Cluster) { c.UID = "2" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "1", Generation: 1}}
			after := before.DeepCopy()
			tc.change(after)
			if got := scheduledmachine.ClusterChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("%s: %v", tc.reason, got)
			}
		})
	}
	if p := scheduledmachine.ClusterChanges(); !p.Create(event.CreateEvent{}) || !p.Delete(event.DeleteEvent{}) {
		t.Error("a Cluster that appears or goes matters")
	}
}

// TestAMachineThatIsReadyIsAnnounced checks that the last Event of a joined machine reports that it is ready.
func TestAMachineThatIsReadyIsAnnounced(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	var last string
	for len(w.recorder.Events) > 0 {
		last = <-w.recorder.Events
	}
	if want := "Normal MachineRunning Machine is healthy and running"; last != want {
		t.Errorf("last event %q, want %q", last, want)
	}
	w.settle()
	if n := len(w.recorder.Events); n > 0 {
		t.Error(fmt.Sprint(n, " more: ", <-w.recorder.Events))
	}
}
