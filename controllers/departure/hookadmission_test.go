// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// clusterGoes deletes the Cluster, which stays because of its finalizer.
func (w *hookWorld) clusterGoes() {
	w.Helper()
	w.cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
	w.Must(w.Client.Update(w.Context(), w.cluster))
	w.Must(w.Client.Delete(w.Context(), w.cluster))
}

// TestAMachineDeletedByOthersWaitsForItsAdmission deletes a Machine with another client. Its ScheduledMachine exists, is
// gone, or is another one of the same name.
func TestAMachineDeletedByOthersWaitsForItsAdmission(t *testing.T) {
	for name, tc := range map[string]struct {
		extensions []string
		change     func(*hookWorld)
		heldInTurn string
	}{
		"Alone":         {nil, func(*hookWorld) {}, ""},
		"WithExtension": {[]string{"one"}, func(*hookWorld) {}, "pre-terminate"},
		"Orphan":        {nil, func(w *hookWorld) { w.Must(w.Client.Delete(w.Context(), w.sm)) }, ""},
		"OrphanOfTheSameName": {nil, func(w *hookWorld) {
			w.Must(w.Client.Delete(w.Context(), w.sm))
			w.Create(testenv.ScheduledMachine(w.sm.Namespace, w.sm.Name))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t, tc.extensions...)
			w.planned = true
			w.leave()
			tc.change(w)
			w.restart()
			for range 3 {
				if again := w.settle(); again != 0 || len(w.Writes) > 0 || len(w.newCalls()) > 0 || w.held() != "pre-drain pre-terminate" {
					t.Fatalf("again in %v, held by %q, wrote %v", again, w.held(), w.Writes)
				}
				w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
			}
			w.planned = false
			w.settle()
			if w.held() != tc.heldInTurn {
				t.Errorf("held by %q in its turn, wrote %v", w.held(), w.Writes)
			}
			if d, ok := v1alpha1.ParseDeparture(w.machine.Annotations[v1alpha1.DepartureAnnotation]); !ok || d.Reason != v1alpha1.DeletedByOthers || d.Lane != v1alpha1.UnscheduledLane {
				t.Errorf("on record is %+v", d)
			}
		})
	}
}

// TestExemptMachinesAreReleased checks the exempt departures while the cap is used up.
func TestExemptMachinesAreReleased(t *testing.T) {
	for name, change := range map[string]func(*hookWorld){
		"KillSwitch": func(w *hookWorld) {
			w.sm.Spec.KillSwitch = true
			w.Must(w.Client.Update(w.Context(), w.sm))
		},
		"KillSwitchOfAnotherOfItsName": func(w *hookWorld) {
			w.Must(w.Client.Delete(w.Context(), w.sm))
			again := testenv.ScheduledMachine(w.sm.Namespace, w.sm.Name)
			again.Spec.KillSwitch = true
			w.Create(again)
		},
		"AnotherManagers": func(w *hookWorld) {
			w.Must(w.Client.Delete(w.Context(), w.sm))
			w.Edit(w.machine, func() {
				w.machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "theirs", UID: "theirs", Controller: new(true)}}
			})
		},
		"OnRecord": func(w *hookWorld) {
			d := v1alpha1.Departure{Reason: v1alpha1.WindowClosed, Since: metav1.NewTime(w.clock.Now()), MachineUID: w.machine.UID}
			before := w.machine.DeepCopy()
			w.machine.Annotations[v1alpha1.DepartureAnnotation] = d.String()
			w.Must(w.Client.Patch(w.Context(), w.machine, client.MergeFrom(before)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t)
			w.planned = true
			w.leave()
			change(w)
			w.restart()
			w.settle()
			if w.held() != "" {
				t.Errorf("held by %q, wrote %v", w.held(), w.Writes)
			}
		})
	}
}

// TestAPausedScheduledMachineKeepsItsMachine deletes the Machine with another client during the pause.
func TestAPausedScheduledMachineKeepsItsMachine(t *testing.T) {
	w := newHookWorld(t, "one")
	w.leave()
	w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	w.Must(w.Client.Update(w.Context(), w.sm))
	w.restart()
	if again := w.settle(); again != 0 || len(w.Writes) > 0 || len(w.newCalls()) > 0 || w.held() != "pre-drain pre-terminate" {
		t.Errorf("again in %v, held by %q, wrote %v", again, w.held(), w.Writes)
	}
}

// TestTheDeletionOfAClusterIsRecorded checks the departure record of Machines that Cluster API deletes with their
// Cluster.
func TestTheDeletionOfAClusterIsRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*hookWorld)
		want   v1alpha1.DepartureReason
	}{
		"Cluster":       {func(*hookWorld) {}, v1alpha1.ClusterDeleted},
		"WithoutParent": {func(w *hookWorld) { w.Must(w.Client.Delete(w.Context(), w.sm)) }, v1alpha1.ClusterDeleted},
		"SMGoes": {func(w *hookWorld) {
			w.Edit(w.sm, func() { w.sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} })
			w.Must(w.Client.Delete(w.Context(), w.sm))
		}, v1alpha1.ScheduledMachineDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t)
			w.planned = true
			w.clusterGoes()
			tc.change(w)
			w.leave()
			w.restart()
			w.settle()
			d, ok := v1alpha1.ParseDeparture(w.machine.Annotations[v1alpha1.DepartureAnnotation])
			if !ok || d.Reason != tc.want || d.Lane != v1alpha1.ExemptLane || w.held() != "" {
				t.Errorf("held by %q, on record is %+v", w.held(), d)
			}
		})
	}
}

// TestARecordIsNotOverwritten uses a stale cache without the departure record.
func TestARecordIsNotOverwritten(t *testing.T) {
	w := newHookWorld(t)
	w.clusterGoes()
	w.leave()
	reads, thaw := w.Late(w.machine)
	w.reads = reads
	w.restart()
	d := v1alpha1.NewDeparture(v1alpha1.ClusterDeleted, w.clock.Now(), "first")
	d.MachineUID = w.machine.UID
	w.Edit(w.machine, func() { w.machine.Annotations[v1alpha1.DepartureAnnotation] = d.String() })
	if res, err := w.reconcile(); err != nil || res.RequeueAfter == 0 {
		t.Errorf("it is tried again in %v, %v", res.RequeueAfter, err)
	}
	thaw()
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.settle()
	if got := w.machine.Annotations[v1alpha1.DepartureAnnotation]; got != d.String() || w.held() != "" {
		t.Errorf("held by %q, on record is %s", w.held(), got)
	}
}
