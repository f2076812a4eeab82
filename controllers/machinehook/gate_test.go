// SPDX-License-Identifier: Apache-2.0

package machinehook_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// planned adds a planner that admits one machine of the Cluster in ten seconds, and starts the departure of
// another machine now.
func (w *world) planned() *roster.Roster {
	w.Helper()
	turns, other := &roster.Roster{}, types.NamespacedName{Namespace: w.sm.Namespace, Name: "other"}
	turns.Report(other, roster.Entry{Cluster: client.ObjectKeyFromObject(w.cluster), Machine: "other", Left: w.clock.Now()}, w.clock.Now())
	return turns
}

// clusterGoes deletes the Cluster, which stays because of its finalizer.
func (w *world) clusterGoes() {
	w.Helper()
	w.cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
	w.Must(w.Client.Update(w.Context(), w.cluster))
	w.Must(w.Client.Delete(w.Context(), w.cluster))
}

// plan runs the planner once.
func (w *world) plan(turns *roster.Roster) {
	key := client.ObjectKeyFromObject(w.cluster)
	f, _ := turns.Fleet(key, w.clock.Now())
	turns.Publish(key, departure.Decide(f, departure.Limits{Cap: 50_000}), w.clock.Now())
}

// TestAMachineThatSomebodyDeletesWaitsForItsTurn deletes a Machine with another client.
func TestAMachineThatSomebodyDeletesWaitsForItsTurn(t *testing.T) {
	for name, tc := range map[string]struct {
		extensions []string
		heldInTurn string
	}{"Alone": {nil, ""}, "WithExtension": {[]string{"one"}, "pre-terminate"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.extensions...)
			w.leave()
			w.restart()
			turns := w.planned()
			w.r.Roster = turns
			for range 3 {
				if again := w.settle(); again != 0 || len(w.Writes) > 0 || len(w.wasAsked()) > 0 || w.held() != "pre-drain pre-terminate" {
					t.Fatalf("again in %v, held by %q, wrote %v", again, w.held(), w.Writes)
				}
				w.plan(turns)
				w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
			}
			if v := turns.CurrentVerdict(client.ObjectKeyFromObject(w.sm), w.machine.UID); v.Reason != departure.BlastRadiusCap {
				t.Errorf("the planner says %+v", v)
			}
			w.clock.SetTime(w.clock.Now().Add(departure.Window))
			w.plan(turns)
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

// TestWhoMustNotWaitIsLetGo checks the exempt departures while the cap is used up.
func TestWhoMustNotWaitIsLetGo(t *testing.T) {
	for name, change := range map[string]func(*world){
		"KillSwitch": func(w *world) {
			w.sm.Spec.KillSwitch = true
			w.Must(w.Client.Update(w.Context(), w.sm))
		},
		"ClusterGoes": (*world).clusterGoes,
		"ClusterOfAnOrphanGoes": func(w *world) {
			w.Must(w.Client.Delete(w.Context(), w.sm))
			w.clusterGoes()
		},
		"KillSwitchOfAnotherOfItsName": func(w *world) {
			w.Must(w.Client.Delete(w.Context(), w.sm))
			again := testenv.ScheduledMachine(w.sm.Namespace, w.sm.Name)
			again.Spec.KillSwitch = true
			w.Create(again)
		},
		"SomebodyElses": func(w *world) {
			w.Must(w.Client.Delete(w.Context(), w.sm))
			w.Edit(w.machine, func() {
				w.machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "theirs", UID: "theirs", Controller: new(true)}}
			})
		},
		"OnRecord": func(w *world) {
			d := v1alpha1.Departure{Reason: v1alpha1.WindowClosed, Since: metav1.NewTime(w.clock.Now()), MachineUID: w.machine.UID}
			before := w.machine.DeepCopy()
			w.machine.Annotations[v1alpha1.DepartureAnnotation] = d.String()
			w.Must(w.Client.Patch(w.Context(), w.machine, client.MergeFrom(before)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leave()
			change(w)
			w.restart()
			w.r.Roster = w.planned()
			w.settle()
			if w.held() != "" {
				t.Errorf("held by %q, wrote %v", w.held(), w.Writes)
			}
		})
	}
}

// TestAMachineWithoutItsScheduledMachineWaitsForItsTurn checks orphans, with and without a new ScheduledMachine
// of the same name. The garbage collector deletes all of them at once.
func TestAMachineWithoutItsScheduledMachineWaitsForItsTurn(t *testing.T) {
	for name, change := range map[string]func(*world){
		"Gone":    func(*world) {},
		"Another": func(w *world) { w.Create(testenv.ScheduledMachine(w.sm.Namespace, w.sm.Name)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leave()
			w.Must(w.Client.Delete(t.Context(), w.sm))
			change(w)
			w.restart()
			turns := w.planned()
			w.r.Roster = turns
			for range 3 {
				if again := w.settle(); again != 0 || len(w.Writes) > 0 || w.held() != "pre-drain pre-terminate" {
					t.Fatalf("again in %v, held by %q, wrote %v", again, w.held(), w.Writes)
				}
				w.plan(turns)
				w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
			}
			own := roster.OrphanName(client.ObjectKeyFromObject(w.machine))
			if v := turns.CurrentVerdict(own, w.machine.UID); v.Reason != departure.BlastRadiusCap {
				t.Errorf("the planner says %+v", v)
			}
			if e, _ := turns.LastReport(own); !e.From.Equal(w.machine.DeletionTimestamp.Time) {
				t.Errorf("it is to leave since %v, and was deleted at %v: a restart puts it off", e.From, w.machine.DeletionTimestamp)
			}
			w.clock.SetTime(w.clock.Now().Add(departure.Window))
			w.plan(turns)
			w.settle()
			if w.held() != "" {
				t.Errorf("held by %q in its turn, wrote %v", w.held(), w.Writes)
			}
			if d, ok := v1alpha1.ParseDeparture(w.machine.Annotations[v1alpha1.DepartureAnnotation]); !ok || d.Reason != v1alpha1.DeletedByOthers || d.Lane != v1alpha1.UnscheduledLane {
				t.Errorf("on record is %+v", d)
			}
			w.clock.SetTime(w.clock.Now().Add(2 * departure.Window))
			if f, _ := turns.Fleet(client.ObjectKeyFromObject(w.cluster), w.clock.Now()); len(f.Candidates) != 0 || f.Departed != 2 {
				t.Errorf("it has left, and is planned: %+v", f)
			}
		})
	}
}

// TestACacheThatIsLatePartsNobody uses a cache that lacks the ScheduledMachine, which the API server has.
func TestACacheThatIsLatePartsNobody(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.restart()
	turns := w.planned()
	w.r.Roster, w.r.Live = turns, w.Client
	w.r.Reader = late{w.r.Reader}
	w.settle()
	if e, told := turns.LastReport(client.ObjectKeyFromObject(w.sm)); !told || e.Machine != w.machine.UID {
		t.Errorf("it is planned as %+v", e)
	}
	if e, told := turns.LastReport(roster.OrphanName(client.ObjectKeyFromObject(w.machine))); told {
		t.Errorf("it is taken for an orphan: %+v", e)
	}
}

// late is a cache without ScheduledMachines.
type late struct{ client.Reader }

func (l late) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, scheduled := obj.(*v1alpha1.ScheduledMachine); scheduled {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("scheduledmachines").GroupResource(), key.Name)
	}
	return l.Reader.Get(ctx, key, obj, opts...)
}

// TestATryIsAnswered checks that a start counts from the response of the API server.
func TestATryIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.restart()
	turns := &roster.Roster{}
	w.r.Roster = turns
	w.settle()
	w.plan(turns)
	if v := turns.CurrentVerdict(client.ObjectKeyFromObject(w.sm), w.machine.UID); !v.Granted {
		t.Fatalf("the planner says %+v", v)
	}
	w.settle()
	w.clock.SetTime(w.clock.Now().Add(departure.Window / 2))
	turns.Forget(client.ObjectKeyFromObject(w.sm), w.clock.Now())
	f, _ := turns.Fleet(client.ObjectKeyFromObject(w.cluster), w.clock.Now())
	if want := w.clock.Now().Add(-departure.Window / 2); len(f.Started) != 1 || !f.Started[0].Equal(want) {
		t.Errorf("started at %v, want at %v: nobody was told of the answer", f.Started, want)
	}
}

// TestAPausedScheduledMachineKeepsItsMachine deletes the Machine with another client during the pause.
func TestAPausedScheduledMachineKeepsItsMachine(t *testing.T) {
	w := newWorld(t, "one")
	w.leave()
	w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	w.Must(w.Client.Update(w.Context(), w.sm))
	w.restart()
	w.r.Roster = w.planned()
	if again := w.settle(); again != 0 || len(w.Writes) > 0 || len(w.wasAsked()) > 0 || w.held() != "pre-drain pre-terminate" {
		t.Errorf("again in %v, held by %q, wrote %v", again, w.held(), w.Writes)
	}
}

// TestAClusterThatGoesIsOnRecord checks the departure record of Machines that Cluster API deletes with their
// Cluster.
func TestAClusterThatGoesIsOnRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   v1alpha1.DepartureReason
	}{
		"Cluster":   {func(*world) {}, v1alpha1.ClusterDeleted},
		"NobodysSM": {func(w *world) { w.Must(w.Client.Delete(w.Context(), w.sm)) }, v1alpha1.ClusterDeleted},
		"SMGoes": {func(w *world) {
			w.Edit(w.sm, func() { w.sm.Finalizers = []string{v1alpha1.ScheduledMachineFinalizer} })
			w.Must(w.Client.Delete(w.Context(), w.sm))
		}, v1alpha1.ScheduledMachineDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.clusterGoes()
			tc.change(w)
			w.leave()
			w.restart()
			w.r.Roster = w.planned()
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
	w := newWorld(t)
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
