// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// balancers is a step with a given verdict before the drain, and another one after it.
type balancers struct {
	says, after leaving.Verdict
	// looks counts the calls of Check, forgotten the calls of Forget.
	looks, forgotten int
}

func (*balancers) Concerns(context.Context, *clusterv1.Machine) (bool, error) { return true, nil }
func (b *balancers) Forget(types.UID)                                         { b.forgotten++ }
func (b *balancers) Check(_ context.Context, d leaving.Departing, _ time.Time) (leaving.Verdict, error) {
	b.looks++
	if d.Phase != hooksv1.BeforeDrain {
		return b.after, nil
	}
	return b.says, nil
}

// TestWhatAStepWaitsForIsReported expects an Event with the cause and none for WaitingForResponseReason. It expects one
// Warning for a missed deadline, also after another reconcile.
func TestWhatAStepWaitsForIsReported(t *testing.T) {
	const waits = v1alpha1.WaitingForLoadBalancersReason
	asking := leaving.Verdict{Holds: true, Reason: v1alpha1.WaitingForResponseReason, Note: "load balancer edge: not called yet"}
	busy := leaving.Verdict{Holds: true, Reason: waits, Note: "load balancer edge: 3 connections"}
	fewer := leaving.Verdict{Holds: true, Reason: waits, Note: "load balancer edge: 2 connections"}
	for name, tc := range map[string]struct {
		says   []leaving.Verdict
		want   []string
		missed float64
	}{
		"Done":    {[]leaving.Verdict{asking, busy, fewer, {}}, []string{"Normal WaitingForLoadBalancers load balancer edge: 3 connections"}, 0},
		"AtOnce":  {[]leaving.Verdict{asking, {}}, nil, 0},
		"Missed":  {[]leaving.Verdict{busy, {Missed: true, Reason: waits, Note: "load balancer edge missed"}}, []string{"Normal WaitingForLoadBalancers load balancer edge: 3 connections", "Warning StepsSkipped load balancer edge missed"}, 1},
		"Ignored": {[]leaving.Verdict{asking, {Failed: true, Note: "load balancer edge failed and is ignored"}}, []string{"Warning StepsSkipped load balancer edge failed and is ignored"}, 0},
		"Left":    {[]leaving.Verdict{{Note: "lab/a is left alone"}}, []string{"Normal StepsCompleted lab/a is left alone"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := testutil.CollectAndCount(departure.DeadlinesMissed)
			w, step := newHookWorld(t), &balancers{}
			w.leave()
			w.restart()
			w.r.Steps = leaving.Steps{step}
			for _, step.says = range tc.says {
				w.settle()
				if asking := w.waits(); step.says == tc.says[0] && step.says.Reason == v1alpha1.WaitingForResponseReason && asking != "False WaitingForResponse: load balancer edge: not called yet" {
					t.Errorf("the condition says %q", asking)
				}
			}
			w.settle()
			if w.held() != "pre-terminate" {
				t.Errorf("held by %q", w.held())
			}
			close(w.recorder.Events)
			var told []string
			for e := range w.recorder.Events {
				told = append(told, e)
			}
			if diff := cmp.Diff(tc.want, told); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			counted := departure.DeadlinesMissed.WithLabelValues(w.machine.Namespace, w.machine.Spec.ClusterName, waits)
			if got := testutil.ToFloat64(counted); got != tc.missed {
				t.Errorf("counted as %v, want %v", got, tc.missed)
			}
			departure.StartClusterSeries(types.NamespacedName{Namespace: w.machine.Namespace, Name: w.machine.Spec.ClusterName})
			if n := testutil.CollectAndCount(departure.DeadlinesMissed); n != before+4 {
				t.Errorf("%d series, want 4 of the Cluster", n-before)
			}
			if got := testutil.ToFloat64(counted); got != tc.missed {
				t.Errorf("%v are left of %v after another ScheduledMachine is known", got, tc.missed)
			}
			departure.RemoveClusterSeries(types.NamespacedName{Namespace: w.machine.Namespace, Name: w.machine.Spec.ClusterName})
			if n := testutil.CollectAndCount(departure.DeadlinesMissed); n != before {
				t.Errorf("%d series are left of a Cluster that is gone", n)
			}
		})
	}
}

// TestAMissIsCountedOnce has a step that misses its deadline while another one holds the Machine.
func TestAMissIsCountedOnce(t *testing.T) {
	w := newHookWorld(t)
	w.leave()
	w.restart()
	const missed = v1alpha1.WaitingForLoadBalancersReason
	edge := &balancers{says: leaving.Verdict{Holds: true, Reason: missed, Note: "load balancer edge: 3 connections"}}
	pods := &balancers{says: leaving.Verdict{Holds: true, Reason: v1alpha1.WaitingForOperatorsReason, Note: "db-0"}}
	w.r.Steps = leaving.Steps{edge, pods}
	w.settle()
	edge.says = leaving.Verdict{Missed: true, Reason: missed, Note: "load balancer edge missed"}
	w.settle()
	pods.says = leaving.Verdict{}
	w.settle()
	counted := departure.DeadlinesMissed.WithLabelValues(w.machine.Namespace, w.machine.Spec.ClusterName, missed)
	if got := testutil.ToFloat64(counted); w.held() != "pre-terminate" || got != 1 {
		t.Errorf("held by %q, counted as %v, want 1", w.held(), got)
	}
	departure.RemoveClusterSeries(types.NamespacedName{Namespace: w.machine.Namespace, Name: w.machine.Spec.ClusterName})
}

// TestBothPhasesAreReported expects a Warning for each phase, although the condition stays True, StepsSkipped.
func TestBothPhasesAreReported(t *testing.T) {
	w := newHookWorld(t)
	w.leave()
	w.restart()
	w.r.Steps = leaving.Steps{&balancers{
		says:  leaving.Verdict{Missed: true, Reason: v1alpha1.WaitingForLoadBalancersReason, Note: "load balancer edge missed"},
		after: leaving.Verdict{Failed: true, Note: "pods failed and are ignored"},
	}}
	w.settle()
	w.status(func(s *clusterv1.MachineStatus) {
		s.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreTerminateHookStartTime: metav1.NewTime(w.clock.Now())}
	})
	w.settle()
	close(w.recorder.Events)
	var told []string
	for e := range w.recorder.Events {
		told = append(told, e)
	}
	if diff := cmp.Diff([]string{"Warning StepsSkipped load balancer edge missed", "Warning StepsSkipped pods failed and are ignored"}, told); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestAStepThatLooksOnceMore checks that the step requeues the Machine while an extension holds it.
func TestAStepThatLooksOnceMore(t *testing.T) {
	w := newHookWorld(t, "a-lb")
	w.answers = map[string]int32{"a-lb": 50}
	w.leave()
	w.restart()
	step := &balancers{says: leaving.Verdict{Again: w.clock.Now().Add(5 * time.Second)}}
	w.r.Steps = leaving.Steps{step}
	if again := w.settle(); w.held() == "pre-terminate" || again != 5*time.Second {
		t.Errorf("held by %q, again after %s", w.held(), again)
	}
}
