// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workers"
)

// timesOut is how long a write takes if a webhook that is ignored has a timeout of 10 s.
const timesOut = 10*time.Second + 50*time.Millisecond

// TestMachinesLeaveAlthoughWritesAreSlow ends one window of a Cluster whose writes are slow.
func TestMachinesLeaveAlthoughWritesAreSlow(t *testing.T) {
	for name, tc := range map[string]struct {
		machines                int
		patch, deletion, within time.Duration
	}{
		"Fast":                     {40, 20 * time.Millisecond, 0, 4 * time.Minute},
		"SlowPatches":              {40, 5 * time.Second, 0, 390 * time.Second},
		"PatchesTimeOut":           {10, timesOut, 0, 5 * time.Minute},
		"ManyPatchesTimeOut":       {40, timesOut, 0, 10 * time.Minute},
		"PatchesAndDeletesTimeOut": {40, timesOut, timesOut, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.machines)
				w.bubble, w.r.Writes = time.Now(), 50
				w.warm()
				for i := range tc.machines {
					w.leaves(v1alpha1.ScheduledLane, i)
				}
				w.slow, w.slowDelete = tc.patch, tc.deletion
				end := w.clock.Now()
				for len(w.starts) < tc.machines && w.clock.Now().Sub(end) < tc.within {
					deleted := w.deletions
					next := w.plan()
					if w.deletions > deleted { // The events of the deletions start the planner.
						next = time.Millisecond
					}
					w.after(max(next, time.Millisecond))
				}
				if len(w.starts) < tc.machines {
					t.Errorf("%d of %d machines have left after %s", len(w.starts), tc.machines, tc.within)
				}
				limit := max(1, tc.machines/20)
				for i := limit; i < len(w.starts); i++ {
					if d := w.starts[i].Sub(w.starts[i-limit]); d < departurecap.Window {
						t.Fatalf("%d start within %s", limit+1, d)
					}
				}
			})
		})
	}
}

// TestAnAdmissionOutlastsItsWrite compares the constants: a reconcile may wait that long for one write.
func TestAnAdmissionOutlastsItsWrite(t *testing.T) {
	if departurecap.MaxRun != workers.Deadline || children.AdmissionLasts < workers.Deadline+departurecap.Window {
		t.Errorf("it lasts %s, a run %s", children.AdmissionLasts, departurecap.MaxRun)
	}
}

// TestALateAdmissionLeadsToADeletion has an API server that answers an admission late, or does not answer at all.
func TestALateAdmissionLeadsToADeletion(t *testing.T) {
	for _, lost := range []error{nil, errLocked} {
		w := newWorld(t, 10)
		w.warm()
		w.leaves(v1alpha1.UnscheduledLane, 3)
		w.slow, w.lost = 25*time.Second, lost
		next := w.plan()
		w.slow, w.lost = 0, nil
		w.after(next)
		if w.plan(); !slices.Equal(w.begin(), []int{3}) {
			t.Errorf("it does not leave, the reply was lost with %v", lost)
		}
	}
}

// TestALateAdmissionOfAMachineThatStaysDeletesNothing changes the ScheduledMachine or the Cluster while the API server
// writes the admission.
func TestALateAdmissionOfAMachineThatStaysDeletesNothing(t *testing.T) {
	for name, change := range map[string]func(*world, *v1alpha1.ScheduledMachine){
		"Opens": func(w *world, sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule = v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}}
			w.must(w.Update(w.Context(), sm))
		},
		"IsPaused": func(w *world, sm *v1alpha1.ScheduledMachine) {
			metav1.SetMetaDataAnnotation(&sm.ObjectMeta, clusterv1.PausedAnnotation, "")
			w.must(w.Update(w.Context(), sm))
		},
		"IsCreatedAnew": func(w *world, sm *v1alpha1.ScheduledMachine) {
			w.must(w.Delete(w.Context(), sm))
			sm.UID, sm.ResourceVersion = "new", ""
			w.must(w.Create(w.Context(), sm))
		},
		"IsGone": func(w *world, sm *v1alpha1.ScheduledMachine) { w.must(w.Delete(w.Context(), sm)) },
		"ClusterIsPaused": func(w *world, _ *v1alpha1.ScheduledMachine) {
			cluster := &clusterv1.Cluster{}
			w.must(w.Get(w.Context(), lab, cluster))
			cluster.Spec.Paused = new(true)
			w.must(w.Update(w.Context(), cluster))
		},
	} {
		w := newWorld(t, 10)
		w.warm()
		w.leaves(v1alpha1.UnscheduledLane, 3)
		w.slow = 12 * time.Second
		w.patching = func() {
			w.patching = nil
			sm := &v1alpha1.ScheduledMachine{}
			w.must(w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: box(3)}, sm))
			change(w, sm)
		}
		for range 60 {
			_, _ = w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: lab})
			w.after(time.Second)
		}
		if !w.machine(3).DeletionTimestamp.IsZero() {
			t.Errorf("%s: it is deleted", name)
		}
	}
}

// TestADeletionThatIsUnansweredCounts has a webhook hold a deletion for longer than the admission lasts.
func TestADeletionThatIsUnansweredCounts(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 3)
	w.slowDelete, w.undeletable = 25*time.Second, errLocked
	w.plan()
	w.slowDelete, w.undeletable, w.locked = 0, nil, map[string]bool{machineOf(3): true}
	w.leaves(v1alpha1.UnscheduledLane, 5)
	w.after(departurecap.Window - time.Second)
	if w.plan(); len(w.begin()) != 0 {
		t.Error("the delete call may still arrive")
	}
	w.after(time.Second)
	if w.plan(); !slices.Equal(w.begin(), []int{5}) {
		t.Error("it takes the start of another machine")
	}
	w.locked = nil
	w.after(departurecap.Window)
	w.plan()
	if state, d := children.StateOf(w.machine(3), w.clock.Now()); state != children.Requested || d.ExpiredAt.After(w.clock.Now()) {
		t.Errorf("the record is %+v", d)
	}
}

// TestALeaderWaitsForAnAdmissionOfTheOneBefore writes the admission of another leader, which may still delete the Machine.
func TestALeaderWaitsForAnAdmissionOfTheOneBefore(t *testing.T) {
	w := newWorld(t, 10)
	w.change(3, func(m *clusterv1.Machine) {
		children.SetDeparture(m, v1alpha1.NewDeparture(v1alpha1.WindowClosed, w.clock.Now(), "a"))
	})
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 5)
	w.after(children.AdmissionLasts - lease)
	if w.plan(); len(w.begin()) != 0 {
		t.Error("another one leaves meanwhile")
	}
	w.after(departurecap.Window)
	if w.plan(); !slices.Equal(w.begin(), []int{5}) {
		t.Error("the admission of another leader blocks its Cluster")
	}
}
