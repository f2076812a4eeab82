// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var java = v1alpha1.ReclaimRecord{Node: "box-node", NodeUID: "u-1", Reason: "process-match: java", RequestedAt: "2025-01-20T10:00:00Z"}

// givenBack returns a machine that its owner has reclaimed.
func givenBack(t *testing.T, policy v1alpha1.ResumePolicy) *world {
	t.Helper()
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.ResumeAfterReclaim = policy
		sm.Spec.Schedule.Enabled = new(false)
		sm.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: java.String()}
	})
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	w.want(v1alpha1.PhaseDisabled, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimDisabledScheduleReason)
	return w
}

// enable enables the schedule, like a tool that applies its desired state with force.
func (w *world) enable() {
	w.Helper()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(true) })
	w.settle()
}

func TestWritesThatLendAgain(t *testing.T) {
	w := givenBack(t, v1alpha1.ResumeOnEnable)
	w.enable()
	if _, ok := w.machine(); !ok {
		t.Error("OnEnable: setting enabled to true lends the machine again")
	}

	w = givenBack(t, v1alpha1.ResumeOnResume)
	for range 4 {
		w.enable()
		w.want(v1alpha1.PhaseDisabled, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimDisabledScheduleReason)
	}
	if got := conditions.Get(w.sm, v1alpha1.ScheduledCondition).Message; !strings.Contains(got, "kubectl 5spot resume") || !strings.Contains(got, "java") {
		t.Errorf("it says why, and the way out: %q", got)
	}
	if _, ok := w.machine(); ok || w.sm.Status.InSchedule {
		t.Fatal("OnResume: no desired state lends a machine whose owner has it")
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) { delete(sm.Annotations, v1alpha1.ReclaimedAnnotation) })
	w.settle()
	if _, ok := w.machine(); !ok {
		t.Error("a person who removes the record lends it again")
	}
}

// again deletes and recreates the ScheduledMachine, like a topology, a GitOps tool or a restored backup.
func (w *world) again(change func(*v1alpha1.ScheduledMachine)) {
	w.Helper()
	w.Must(w.Client.Delete(w.Context(), w.sm))
	for range 6 {
		w.reconcile()
	}
	if w.Read(w.sm) {
		w.Fatalf("still there: %+v", w.sm)
	}
	policy := w.sm.Spec.ResumeAfterReclaim
	w.sm = testenv.ScheduledMachine(w.cluster.Namespace, "box")
	w.sm.Spec.ResumeAfterReclaim = policy
	if change != nil {
		change(w.sm)
	}
	w.Create(w.sm)
	w.settle()
}

func (w *world) left() bool {
	w.Helper()
	left := &v1alpha1.ReclaimedMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "box"}}
	return w.Read(left)
}

func TestAReclaimSurvivesADeletion(t *testing.T) {
	for _, policy := range []v1alpha1.ResumePolicy{v1alpha1.ResumeOnEnable, v1alpha1.ResumeOnResume} {
		for name, change := range map[string]func(*v1alpha1.ScheduledMachine){
			"ByTopology": nil,
			"ByGitOps":   func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(true) },
			"ByBackup":   func(sm *v1alpha1.ScheduledMachine) { sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} },
		} {
			t.Run(string(policy)+"/"+name, func(t *testing.T) {
				w := givenBack(t, policy)
				w.again(change)
				w.want(v1alpha1.PhaseDisabled, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimDisabledScheduleReason)
				if got := conditions.Get(w.sm, v1alpha1.ScheduledCondition).Message; !strings.Contains(got, "java") {
					t.Errorf("it says why: %q", got)
				}
				w.settle()
				if w.left() {
					t.Error("what has been taken over is left behind")
				}
				w.edit(func(sm *v1alpha1.ScheduledMachine) { // kubectl 5spot resume
					delete(sm.Annotations, v1alpha1.ReclaimedAnnotation)
					sm.Spec.Schedule.Enabled = new(true)
				})
				w.settle()
				if _, ok := w.machine(); !ok {
					t.Errorf("lent again by a person: %+v", w.sm.Status)
				}
			})
		}
	}
}

// TestALaterRequestIsServedAfterADeletion uses requests without a time of their own. Only the API server's time
// distinguishes them.
func TestALaterRequestIsServedAfterADeletion(t *testing.T) {
	w := givenBack(t, v1alpha1.ResumeOnEnable)
	first := v1alpha1.ReclaimRecord{Node: "box-node", NodeUID: "u-1", StoredAt: "2025-01-20T10:00:00Z"}
	later := first
	later.StoredAt = "2025-01-21T10:00:00Z"
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.SetServedReclaim(first) })
	w.again(nil)
	served, _ := w.sm.LastReclaim()
	if !first.Same(served) || later.Same(served) {
		t.Errorf("the record of the request is %+v", served)
	}
}

func TestALentMachineLeavesNoReclaimRecord(t *testing.T) {
	w := givenBack(t, v1alpha1.ResumeOnEnable)
	w.enable()
	w.again(nil)
	if w.left() || w.sm.Annotations[v1alpha1.ReclaimedAnnotation] != "" {
		t.Error("its owner had been asked, and had lent it")
	}
}

func TestACrashLosesNoRecord(t *testing.T) {
	testenv.CrashPoints(t, 5, func(t *testing.T, fail testenv.Fail) ([]string, int) {
		t.Helper()
		w := givenBack(t, v1alpha1.ResumeOnEnable)
		w.Writes, w.Fail = nil, fail
		w.Must(w.Client.Delete(t.Context(), w.sm))
		w.survive()
		fresh := testenv.ScheduledMachine(w.cluster.Namespace, "box")
		w.Create(fresh)
		w.sm = fresh
		w.survive()
		_, machine := w.machine()
		w.Read(w.sm)
		stations := []string{string(w.sm.Status.Phase), w.sm.Annotations[v1alpha1.ReclaimedAnnotation]}
		if machine || w.left() {
			stations = append(stations, "lent, or left behind")
		}
		return stations, len(w.Writes)
	})
}

// survive reconciles through failures until the ScheduledMachine is settled or gone.
func (w *world) survive() {
	w.Helper()
	for range 8 {
		if _, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}); err != nil {
			w.Fatal(err)
		}
	}
}

// TestAnOverlongRecordDoesNotBlockADeletion writes a record that is valid for an owner, but too long for a
// ReclaimedMachine.
func TestAnOverlongRecordDoesNotBlockADeletion(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: `{"nodeUID":"` + strings.Repeat("x", 200) + `"}`}
	})
	w.clock.SetTime(monday.Add(time.Hour))
	for range 3 {
		w.reconcile()
	}
	w.Must(w.Client.Delete(w.Context(), w.sm))
	for range 6 {
		w.clock.SetTime(w.clock.Now().Add(time.Hour))
		w.reconcile()
	}
	if w.Read(w.sm) {
		t.Errorf("deletion hangs: %v phase %s %s", w.sm.Finalizers, w.sm.Status.Phase, w.sm.Status.Message)
	}
}
