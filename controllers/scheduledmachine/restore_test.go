// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// stored returns the backup of an object: its complete YAML.
func (w *world) stored(obj client.Object) []byte {
	w.Helper()
	text, err := yaml.Marshal(obj)
	w.Must(err)
	return text
}

// restore creates an object from a backup. It has a new UID and its old owner references, whose UIDs do not exist. The
// status needs a second write.
func (w *world) restore(backup []byte, obj client.Object, status bool) {
	w.Helper()
	w.Must(yaml.UnmarshalStrict(backup, obj))
	refs := obj.GetOwnerReferences()
	for i := range refs {
		refs[i].UID = "of-before"
	}
	obj.SetOwnerReferences(refs)
	obj.SetUID("")
	obj.SetResourceVersion("")
	kept, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		w.Fatalf("%T is no object", obj)
	}
	w.Create(obj)
	if status {
		kept.SetResourceVersion(obj.GetResourceVersion())
		w.Must(w.Client.Status().Update(w.Context(), kept))
	}
}

// lose deletes all objects of 5-Spot, like the loss of the cluster.
func (w *world) lose() {
	w.Helper()
	w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Finalizers = nil })
	w.Must(w.Client.Delete(w.Context(), w.sm))
	w.sm = &v1alpha1.ScheduledMachine{}
}

// wantAway checks that the owner retains the machine, that the status shows why, and that a person can lend it again.
func (w *world) wantAway() {
	w.Helper()
	w.settle()
	w.want(v1alpha1.PhaseDisabled, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimDisabledScheduleReason)
	if got := conditions.Get(w.sm, v1alpha1.ScheduledCondition).Message; !strings.Contains(got, "java") {
		w.Errorf("it does not say why: %q", got)
	}
	if _, ok := w.machine(); ok || w.left() {
		w.Error("it is lent, or what has been taken over is left behind")
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) { // kubectl 5spot resume
		delete(sm.Annotations, v1alpha1.ReclaimedAnnotation)
		sm.Spec.Schedule.Enabled = new(true)
	})
	w.settle()
	if _, ok := w.machine(); !ok {
		w.Errorf("resumed, and not lent: %+v", w.sm.Status)
	}
	if ref := w.sm.OwnerReferences; len(ref) != 1 || ref[0].UID != w.cluster.UID {
		w.Errorf("it is not its Cluster's: %+v", ref)
	}
}

func TestARestoredMachineStaysWithItsOwner(t *testing.T) {
	for _, policy := range []v1alpha1.ResumePolicy{v1alpha1.ResumeOnEnable, v1alpha1.ResumeOnResume} {
		for name, status := range map[string]bool{"WithStatus": true, "WithoutStatus": false} {
			t.Run(string(policy)+name, func(t *testing.T) {
				w := givenBack(t, policy)
				backup := w.stored(w.sm)
				w.lose()
				w.restore(backup, w.sm, status)
				w.wantAway()
			})
		}
	}
}

// TestARestoredRecordKeepsTheMachineAway restores a backup that has only the record. A GitOps tool then recreates the
// ScheduledMachine, without or with schedule.enabled.
func TestARestoredRecordKeepsTheMachineAway(t *testing.T) {
	for name, enabled := range map[string]*bool{"Absent": nil, "On": new(true)} {
		t.Run(name, func(t *testing.T) {
			w := givenBack(t, v1alpha1.ResumeOnEnable)
			w.Must(w.Client.Delete(w.Context(), w.sm))
			for range 6 {
				w.reconcile()
			}
			left := &v1alpha1.ReclaimedMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: "box"}}
			if !w.Read(left) || len(left.OwnerReferences) != 1 {
				t.Fatalf("nothing is left behind: %+v", left)
			}
			backup := w.stored(left)
			w.Must(w.Client.Delete(t.Context(), left))
			w.restore(backup, &v1alpha1.ReclaimedMachine{}, false)
			w.sm = testenv.ScheduledMachine(w.cluster.Namespace, "box")
			w.sm.Spec.Schedule.Enabled = enabled
			w.Create(w.sm)
			w.wantAway()
		})
	}
}

// TestARestoreWithoutARecord checks the documentation: the record is lost, and running machines continue to run.
func TestARestoreWithoutARecord(t *testing.T) {
	t.Run("FromGit", func(t *testing.T) {
		w := givenBack(t, v1alpha1.ResumeOnResume)
		w.lose()
		w.sm = testenv.ScheduledMachine(w.cluster.Namespace, "box")
		w.sm.Spec.ResumeAfterReclaim = v1alpha1.ResumeOnResume
		w.Create(w.sm)
		w.settle()
		if _, ok := w.machine(); !ok || conditions.Has(w.sm, v1alpha1.LentAgainCondition) {
			t.Errorf("it is lent, and the writer is unknown: %+v", w.sm.Status)
		}
	})
	for name, status := range map[string]bool{"RunningWithStatus": true, "RunningWithoutStatus": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.running()
			machine, _ := w.machine()
			bootstrap, _ := w.bootstrap()
			infra, _ := w.infra()
			backup := w.stored(w.sm)
			w.lose()
			for _, child := range []client.Object{machine, bootstrap, infra} { // The restored objects have no owners.
				w.Edit(child, func() { child.SetOwnerReferences(nil) })
			}
			w.restore(backup, w.sm, status)
			w.clock.SetTime(w.clock.Now().Add(time.Minute))
			w.settle()
			if now, ok := w.machine(); !ok || now.UID != machine.UID || !now.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(now, w.sm) {
				t.Errorf("the Machine does not run on as its own: %+v", now.ObjectMeta)
			}
			w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
		})
	}
}

// TestALateRestoredRecordRemovesTheMachine restores the ScheduledMachine before its ReclaimedMachine.
func TestALateRestoredRecordRemovesTheMachine(t *testing.T) {
	w := newWorld(t, nil)
	w.clock.SetTime(monday.Add(-time.Hour)) // Outside of its window, so that there is nothing to depart.
	w.settle()
	left := &v1alpha1.ReclaimedMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: w.sm.Name},
		Spec:       v1alpha1.ReclaimedMachineSpec{ClusterName: w.sm.Spec.ClusterName, Reason: java.Reason, RequestedAt: java.RequestedAt},
	}
	w.Create(left)
	if got, want := w.r.OfReclaimed(t.Context(), left), (ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}); !slices.Contains(got, want) {
		t.Errorf("it wakes %v, and not %v", got, want)
	}
	w.clock.SetTime(monday.Add(time.Hour))
	w.wantAway()
}
