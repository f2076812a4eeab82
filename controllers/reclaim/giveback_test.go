// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
)

// TestAGiveBackIsCountedAndReportedOnce makes writes of the first try fail, and starts a new manager after each
// reconcile.
func TestAGiveBackIsCountedAndReportedOnce(t *testing.T) {
	fault := errors.New("the API server is out of order")
	const recordWrite = "patch ScheduledMachine"
	once := func(write string, before, after error) func(*world) {
		return func(w *world) {
			w.Fail = func(n int) (error, error) {
				if w.Writes[n] != write || slices.Contains(w.Writes[:n], write) {
					return nil, nil
				}
				return before, after
			}
		}
	}
	for name, prepare := range map[string]func(*world){
		"Quiet":                     func(*world) {},
		"MachineNotDeleted":         once("delete Machine", fault, nil),
		"MachineDeletedReplyLost":   once("delete Machine", nil, fault),
		"InfrastructureNotDeleted":  once("delete GenericInfrastructureMachine", fault, nil),
		"NotRecorded":               once(recordWrite, fault, nil),
		"RecordedReplyLost":         once(recordWrite, nil, fault),
		"NodeNotTainted":            once("patch Node", fault, nil),
		"MachineLeavesForItsWindow": func(w *world) { w.Must(w.Client.Delete(w.Context(), w.machine())) },
		"MachineGone": func(w *world) {
			w.Must(w.Client.Delete(w.Context(), w.machine()))
			w.release(w.machine())
		},
		"ChangedMeanwhile": func(w *world) {
			w.Fail = func(n int) (error, error) {
				if w.Writes[n] == "delete GenericInfrastructureMachine" {
					changed := w.sm.DeepCopy()
					w.Edit(changed, func() { changed.Labels = map[string]string{"example.com/by": "another-controller"} })
				}
				return nil, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before, _ := measured(t)
			prepare(w)
			w.askAsPerson()
			w.settle()
			if m := w.machine(); m != nil {
				w.gone()
				w.settle()
			}
			w.Read(w.sm)
			if served, ok := w.sm.ServedReclaim(); !ok || w.sm.ScheduleEnabled() || served.SeenAt == "" {
				t.Errorf("served %t: %+v", ok, served)
			}
			if n := len(w.sm.ReclaimTimes()); n != 1 {
				t.Errorf("%d times are recorded: %v", n, w.sm.Annotations)
			}
			if n := testutil.ToFloat64(reclaim.Reclaims.WithLabelValues(w.sm.Namespace, "lab")); n != 1 {
				t.Errorf("counted %v times", n)
			}
			after, _ := measured(t)
			if n := after["seen"] - before["seen"]; n != 1 {
				t.Errorf("stage seen is measured %d times", n)
			}
			events := 0
			for _, note := range w.events() {
				if strings.HasPrefix(note, "Warning "+v1alpha1.EmergencyReclaimEvent+" ") {
					events++
				}
			}
			if events != 1 {
				t.Errorf("%d Events", events)
			}
			if n := slices.Index(w.Writes, "delete Machine"); n >= 0 && slices.Contains(w.Writes[:n], recordWrite) {
				t.Errorf("the owner waits for the record: %v", w.Writes)
			}
		})
	}
}

// TestGiveBacksByPeopleAreRapidAndASurge covers a machine that a person gives back three times, while three others of
// its Cluster were given back.
func TestGiveBacksByPeopleAreRapidAndASurge(t *testing.T) {
	w := newWorld(t)
	label := map[string]string{clusterv1.ClusterNameLabel: "lab"}
	w.Edit(w.sm, func() { w.sm.Labels = label })
	other := w.sm.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{
		Namespace: w.sm.Namespace, Name: "other", Labels: label,
		Annotations: map[string]string{v1alpha1.ReclaimTimesAnnotation: noon.Format(time.RFC3339)},
	}
	w.Create(other)
	for i := range 3 {
		w.Edit(w.sm, func() {
			metav1.SetMetaDataAnnotation(&w.sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, v1alpha1.PersonsRequest("", "", w.clock.Now()).String())
		})
		w.settle()
		notes := w.events()
		for event, want := range map[string]bool{v1alpha1.EmergencyReclaimEvent: true, v1alpha1.RapidReReclaimEvent: i == 2, v1alpha1.EmergencySurgeEvent: i == 2} {
			if got := slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "Warning "+event+" ") }); got != want {
				t.Errorf("give-back %d: %s is reported: %t, want %t: %q", i+1, event, got, want, notes)
			}
		}
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
		w.Edit(w.sm, func() { delete(w.sm.Annotations, v1alpha1.EmergencyReclaimAnnotation) })
	}
}

// TestARecalledRequestIsReportedOnce removes a person's request after the Machine's deletion.
func TestARecalledRequestIsReportedOnce(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	w.settle()
	w.Edit(w.sm, func() { delete(w.sm.Annotations, v1alpha1.EmergencyReclaimAnnotation) })
	w.events()
	w.settle()
	if notes := w.events(); len(notes) != 1 || !w.sm.BeingReclaimed() || len(w.sm.ReclaimTimes()) != 1 {
		t.Errorf("Events %q, annotations %v", notes, w.sm.Annotations)
	}
}

// TestALostAnswerEndsTheReclaim loses the answer to the write that turns the schedule off. The machine is then given
// back a second time, without a Machine.
func TestALostAnswerEndsTheReclaim(t *testing.T) {
	w := newWorld(t)
	w.annotate("true")
	w.resync()
	w.gone()
	w.events()
	lost := false
	w.Fail = func(n int) (before, after error) {
		if lost || w.Writes[n] != "patch ScheduledMachine" {
			return nil, nil
		}
		lost = true
		return nil, errors.New("the answer is lost")
	}
	w.resync()
	notes := w.events()
	if !lost || len(notes) != 1 || !strings.HasPrefix(notes[0], "Warning "+v1alpha1.EmergencyReclaimDisabledScheduleEvent+" ") {
		t.Errorf("lost %t, Events %q", lost, notes)
	}
	w.Edit(w.sm, func() {
		w.sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = v1alpha1.PersonsRequest("", "", noon).String()
	})
	w.resync()
	w.Read(w.sm)
	if list := w.sm.GiveBacks(); len(list) != 2 || list[0].DeletedAt != "" || list[1].DeletedAt == "" {
		t.Errorf("the second give-back deleted no Machine: %+v", list)
	}
}

// TestTheGiveBackIsRecorded gives a machine back, with and without a restart of the manager meanwhile, and then a
// machine that is not in the cluster.
func TestTheGiveBackIsRecorded(t *testing.T) {
	for name, restart := range map[string]bool{"SameManager": false, "Restarted": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.annotate("true")
			w.resync()
			deleted := "2025-01-15T12:00:00.000Z"
			if restart {
				w.r, deleted = nil, w.machine().DeletionTimestamp.UTC().Format("2006-01-02T15:04:05.000Z")
				w.resync()
			}
			hold := &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9}
			w.sm.Status.ReclaimHold = hold
			w.Must(w.Client.Status().Update(t.Context(), w.sm))
			w.clock.SetTime(noon.Add(41 * time.Second))
			w.gone()
			w.resync()
			served, _ := w.sm.ServedReclaim()
			want := v1alpha1.GiveBack{ReclaimRecord: served, DeletedAt: deleted, Hold: hold}
			if diff := cmp.Diff([]v1alpha1.GiveBack{want}, w.sm.GiveBacks()); diff != "" || served.Reason != "process-match: java" {
				t.Fatalf("-want, +got:\n%s", diff)
			}
			w.Edit(w.sm, func() {
				delete(w.sm.Annotations, v1alpha1.ReclaimedAnnotation)
				w.sm.Spec.Schedule.Enabled = new(true)
				w.sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = v1alpha1.PersonsRequest("", "", noon).String()
			})
			w.resync()
			list := w.sm.GiveBacks()
			if len(list) != 2 || !cmp.Equal(list[1], want) || !list[0].ByPerson() || list[0].DeletedAt != "" || list[0].Hold != nil {
				t.Errorf("no Machine was deleted, so that nothing was held: %+v", list)
			}
		})
	}
}
