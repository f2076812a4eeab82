// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An input is a catastrophe and its expected outcome.
type input struct {
	name string
	// do runs the story. What it starts may continue after it returns.
	do func(*world)
	outcome

	// all and half state which machines leave; without both, none does.
	all, half bool
	// known is a known defect by which rules are broken today; empty is none.
	known string
}

// confirmed is how long a wipe is held.
const confirmed = 2 * rails.Apart

// The signals that people see.
const (
	capped      = v1alpha1.DepartureCapEngagedEvent
	quarantined = v1alpha1.WipeQuarantinedEvent
	suspect     = v1alpha1.ClockSuspectReason
	warmUp      = v1alpha1.WarmUpReason
)

var inputs = slices.Concat(editing, deleting, clocks, reading, leading, writing, urgent, pausing)

// editing are mistakes in specs.
var editing = []input{
	{name: "AllSchedulesAreWiped", do: func(w *world) { w.edit(w.all(), unwanted) }, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "SchedulesAreWipedOneByOne", do: func(w *world) {
		for i := range w.size {
			w.edit([]int{i}, unwanted)
			w.run(25 * time.Second / time.Duration(w.size))
		}
	}, all: true},
	{name: "SchedulesAreWipedAsSlowlyAsTheCap", do: func(w *world) {
		for i := range w.size {
			w.edit([]int{i}, unwanted)
			w.run(200 * time.Second / time.Duration(w.size))
		}
	}, all: true},
	{name: "HalfOfTheSchedulesAreWiped", do: func(w *world) { w.edit(w.half(), unwanted) }, half: true, outcome: outcome{shows: capped}},
	{
		name: "NineInTenSchedulesAreWiped", do: func(w *world) { w.edit(w.from(0, w.size*9/10), unwanted) },
		outcome: outcome{shows: capped, some: func(w *world) []int { return w.from(0, w.size*9/10) }},
	},
	{name: "AWipeIsUndoneBeforeItIsConfirmed", do: func(w *world) {
		w.edit(w.all(), unwanted)
		w.run(confirmed - time.Second)
		w.edit(w.all(), wanted)
	}, outcome: outcome{shows: quarantined, held: time.Hour, makes: true, may: (*world).all}},
	{name: "HalfOfAWipeIsUndoneAfterIt", do: func(w *world) {
		w.edit(w.all(), unwanted)
		w.run(confirmed + 10*time.Second)
		w.edit(w.half(), wanted)
	}, outcome: outcome{shows: quarantined, held: confirmed, makes: true, some: func(w *world) []int { return w.from(w.size/2, w.size) }, may: (*world).half}},
	{name: "AWipeComesAgain", do: func(w *world) {
		w.edit(w.all(), unwanted)
		w.run(confirmed - time.Second)
		w.edit(w.all(), wanted)
		w.run(time.Minute)
		w.begin()
		w.edit(w.all(), unwanted)
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "AllSchedulesAreDisabled", do: func(w *world) {
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) })
	}, outcome: outcome{shows: v1alpha1.ScheduleDisabledReason}},
	{name: "AllDaysAreWiped", do: func(w *world) {
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.DaysOfWeek = nil })
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "NoScheduleCanBeRead", do: func(w *world) {
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"nine to five"} })
	}, outcome: outcome{shows: v1alpha1.ScheduleUnreadableReason}},
	{name: "NoZoneCanBeLoaded", do: func(w *world) {
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Timezone = "Mars/Phobos" })
	}, outcome: outcome{shows: v1alpha1.TimezoneUnavailableReason}},
	{name: "AllZonesAreMoved", do: func(w *world) {
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Timezone = "Asia/Tokyo" })
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "ATemplateFlapsEveryFiveSeconds", do: func(w *world) {
		for range 4 {
			w.edit(w.all(), unwanted)
			w.run(5 * time.Second)
			w.edit(w.all(), wanted)
			w.run(5 * time.Second)
		}
	}, outcome: outcome{shows: quarantined, makes: true, may: (*world).all}},
	{name: "AllPrioritiesAreEqual", do: func(w *world) {
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Priority = new(int32(50)) })
		w.edit(w.half(), unwanted)
	}, half: true, outcome: outcome{shows: capped}},
	{name: "SpecsChangeEverySecond", do: func(w *world) {
		w.edit(w.half(), unwanted)
		for n := range 12 {
			w.run(time.Second)
			w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Priority = new(int32((n * 37) % 100)) })
		}
	}, half: true, outcome: outcome{shows: capped}},
	{name: "AllWindowsEndAtFive", do: func(w *world) {
		w.run(five.Sub(w.now) - time.Second)
		w.run(time.Second - time.Millisecond)
		w.begin()
		w.end = five
	}, all: true, outcome: outcome{shows: capped}},
	{name: "AllAreEditedJustBeforeFive", do: func(w *world) {
		w.run(five.Sub(w.now) - time.Minute)
		w.edit(w.all(), func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"8-16"} })
		w.run(time.Minute - time.Millisecond)
		w.begin()
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
}

// deleting are deletions of objects.
var deleting = []input{
	{name: "AllAreDeleted", do: func(w *world) { w.remove(w.all(), scheduled) }, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "HalfAreDeleted", do: func(w *world) { w.remove(w.half(), scheduled) }, half: true, outcome: outcome{shows: capped}},
	{name: "AllAreDeletedInTheForeground", do: func(w *world) { w.removeInForeground(w.all()) }, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "AllAreDeletedInTheForegroundAndHadNoCluster", do: func(w *world) {
		for _, i := range w.all() {
			w.api.change(machine(i), func(obj client.Object) {
				obj.SetOwnerReferences(slices.DeleteFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.Kind == "Cluster" }))
			})
		}
		w.removeInForeground(w.all())
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "SomebodyDeletesAllMachines", do: func(w *world) { w.remove(w.all(), machine) }, all: true, outcome: outcome{shows: quarantined, held: confirmed, makes: true}},
	{name: "SomebodyDeletesHalfOfTheMachines", do: func(w *world) { w.remove(w.half(), machine) }, half: true, outcome: outcome{shows: capped, makes: true}},
	{name: "SomebodyDeletesWhatWaits", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.run(15 * time.Second)
		w.remove(w.half(), machine)
		w.remove(w.half(), scheduled)
	}, half: true, outcome: outcome{shows: capped}},
	{name: "AllLoseTheirScheduledMachines", do: func(w *world) { w.bereave(w.all()) }, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "HalfLoseTheirScheduledMachinesAndAreMadeAnew", do: func(w *world) {
		var again []*v1alpha1.ScheduledMachine
		for _, i := range w.half() {
			sm := w.api.get(scheduled(i)).DeepCopyObject().(*v1alpha1.ScheduledMachine)
			again = append(again, &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name, Labels: sm.Labels}, Spec: sm.Spec})
		}
		w.bereave(w.half())
		w.run(time.Second)
		for _, sm := range again {
			w.create(sm)
		}
	}, half: true, outcome: outcome{shows: capped, makes: true}},
	{name: "AHealthCheckRemediatesAll", do: func(w *world) {
		for _, i := range w.all() {
			w.api.change(machine(i), func(obj client.Object) {
				conditions.Set(obj.(*clusterv1.Machine), metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: "WaitingForRemediation"})
			})
		}
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed, makes: true}},
	{name: "TheClusterIsDeleted", do: func(w *world) {
		w.editCluster(func(c *clusterv1.Cluster) { c.Finalizers = append(c.Finalizers, clusterv1.ClusterFinalizer) })
		_ = w.api.delete(id{"Cluster", namespace, lab}, "")
	}, all: true, outcome: outcome{shows: v1alpha1.ClusterDeletingReason}},
	{name: "TheClusterIsMissingForAWhile", do: func(w *world) {
		w.edit(w.half(), unwanted)
		was := w.cluster().DeepCopy()
		_ = w.api.delete(idOf(was), "")
		w.run(30 * time.Second)
		was.ResourceVersion, was.UID = "", ""
		w.create(was)
	}, half: true, outcome: outcome{makes: true}}, // The story creates the Cluster.
}

// clocks are wrong clocks.
var clocks = []input{
	{name: "OurClockIsEightHoursAhead", do: func(w *world) { w.setClock(8*time.Hour, 3*time.Minute) }, outcome: outcome{shows: suspect}},
	{name: "OurClockIsOneDayBehind", do: func(w *world) { w.setClock(-24*time.Hour, 3*time.Minute) }, outcome: outcome{shows: suspect}},
	{name: "OurClockIsOneHourBehindWhileManyLeave", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.run(15 * time.Second)
		w.setClock(-time.Hour, 3*time.Minute)
	}, half: true, outcome: outcome{shows: capped}},
	{name: "OurClockIsOneHourAheadWhileManyLeave", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.run(15 * time.Second)
		w.setClock(time.Hour, 3*time.Minute)
	}, half: true, outcome: outcome{shows: capped}},
	{name: "OurClockJumpsByFiftySecondsBackAndForth", do: func(w *world) {
		w.edit(w.half(), unwanted)
		for range 6 {
			w.setClock(50*time.Second, 7*time.Second)
			w.setClock(-50*time.Second, 7*time.Second)
		}
	}, half: true, outcome: outcome{shows: capped}},
	{name: "TheServersClockIsTenMinutesAhead", do: func(w *world) {
		w.apiAhead = 10 * time.Minute
		w.run(5 * time.Second)
		w.begin()
		w.edit(w.half(), unwanted)
		w.run(3 * time.Minute)
		w.apiAhead = 0
	}, half: true, outcome: outcome{shows: suspect, held: 3 * time.Minute}},
	{name: "OurClockIsTwoMinutesAheadAtFive", do: func(w *world) {
		w.run(five.Sub(w.now) - 3*time.Minute)
		w.begin()
		w.setClock(2*time.Minute, 2*time.Minute)
		w.end = five
	}, all: true, outcome: outcome{held: 2 * time.Minute}},
}

// reading are reads that fail, or that return wrong data.
var reading = []input{
	{name: "TheLiveListFailsDuringAWipe", do: func(w *world) {
		w.unreadable = func(kind string) error {
			if kind == "ScheduledMachine" {
				return apierrors.NewInternalError(errLost)
			}
			return nil
		}
		w.edit(w.all(), unwanted)
		w.run(time.Minute)
		w.unreadable = nil
	}, all: true, outcome: outcome{shows: v1alpha1.WipeQuarantineReason, held: time.Minute + confirmed}},
	{name: "TheLiveListIsEmptyDuringAWipe", do: func(w *world) {
		w.shorten = func(string, []runtime.Object) []runtime.Object { return nil }
		w.edit(w.all(), unwanted)
		w.run(time.Minute)
		w.shorten = nil
	}, all: true, outcome: outcome{shows: v1alpha1.WipeQuarantineReason, held: time.Minute + confirmed}},
	{name: "TheLiveListIsShortDuringAWipe", do: func(w *world) {
		w.shorten = func(_ string, found []runtime.Object) []runtime.Object { return found[:len(found)/2] }
		w.edit(w.all(), unwanted)
		w.run(time.Minute)
		w.shorten = nil
	}, all: true, outcome: outcome{shows: v1alpha1.WipeQuarantineReason, held: confirmed}},
	{name: "TheCacheLosesAllScheduledMachines", do: func(w *world) { w.lose30("ScheduledMachine") }},
	{name: "TheCacheLosesAllMachines", do: func(w *world) { w.lose30("Machine") }},
	{name: "TheCacheLosesEverythingOfTheFleet", do: func(w *world) { w.lose30("ScheduledMachine", "Machine", bootstrapKind, infrastructureKind, "Cluster") }},
	{name: "TheCacheLosesMachinesWhileManyLeave", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.run(5 * time.Second)
		w.lose30("Machine")
	}, half: true, outcome: outcome{shows: capped}},
	{name: "TheCacheIsThreeSecondsLate", do: func(w *world) {
		w.managers[0].late = always(3 * time.Second)
		w.edit(w.half(), unwanted)
	}, half: true, outcome: outcome{shows: capped, owed: 7 * time.Second}}, // The specs are seen late, and then the requests.
	{name: "TheCacheIsTwentySecondsLate", do: func(w *world) {
		w.managers[0].late = always(20 * time.Second)
		w.edit(w.half(), unwanted)
		w.run(10 * time.Minute)
		w.managers[0].late = nil
	}, half: true, outcome: outcome{shows: capped, owed: 45 * time.Second}, known: "a cache that is late by more than a window has machines count as active that have left"},
	{name: "TheCacheIsLateAndTheWipeIsUndone", do: func(w *world) {
		w.managers[0].late = func(c change) time.Duration {
			if c.id.kind == "Machine" {
				return 15 * time.Second
			}
			return 0
		}
		for range 4 {
			w.edit(w.half(), unwanted)
			w.run(3 * time.Second)
			w.edit(w.half(), wanted)
			w.run(3 * time.Second)
		}
		w.managers[0].late = nil
	}, outcome: outcome{shows: capped, makes: true, may: (*world).half}, known: "a cache that is late by more than a window lets two start where one may, if the change is undone meanwhile"},
	{name: "TheWorkloadClusterIsUnreachable", do: func(w *world) {
		w.setUnreachable(true)
		w.edit(w.half(), unwanted)
		w.run(5 * time.Minute)
		w.setUnreachable(false)
	}, half: true, outcome: outcome{shows: v1alpha1.NotConnectedReason}},
	{name: "DrainsDoNotEnd", do: func(w *world) {
		w.drain = time.Hour
		w.edit(w.half(), unwanted)
	}, half: true, outcome: outcome{shows: capped}},
}

// leading are managers that start and stop.
var leading = []input{
	{name: "ARestartEveryThreeSecondsAndMachinesAreGoneAtOnce", do: func(w *world) {
		w.drain = 0
		w.edit(w.half(), unwanted)
		for range 10 {
			w.run(3 * time.Second)
			w.restart()
		}
	}, half: true, outcome: outcome{shows: capped}},
	{name: "ARestartEveryTwelveSecondsAfterFive", do: func(w *world) {
		w.run(five.Sub(w.now) - time.Millisecond)
		w.begin()
		w.end = five
		for range 6 {
			w.run(12 * time.Second)
			w.restart()
		}
	}, all: true, outcome: outcome{shows: capped}},
	{name: "AWipeComesWithARestart", do: func(w *world) {
		w.edit(w.all(), unwanted)
		w.restart()
	}, all: true, outcome: outcome{shows: warmUp, held: lease + confirmed}},
	{name: "AWipeComesWithEachRestart", do: func(w *world) {
		w.edit(w.all(), unwanted)
		for range 5 {
			w.restart()
			w.run(lease + confirmed - time.Second)
		}
	}, all: true, outcome: outcome{shows: warmUp, held: 5*(lease+confirmed) - 5*time.Second}},
	{name: "MachinesAreDeletedWhileNobodyLeads", do: func(w *world) {
		w.kill(w.managers[0])
		w.remove(w.half(), machine)
		w.run(time.Minute)
		w.begin()
		w.start()
	}, half: true, outcome: outcome{shows: warmUp, makes: true}},
	{name: "TwoManagersBelieveToLead", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.run(time.Second)
		before := w.managers[0]
		w.start()
		w.run(lease - time.Second)
		w.kill(before)
	}, half: true, outcome: outcome{shows: capped}},
	{name: "TwoManagersBelieveToLeadAtFive", do: func(w *world) {
		w.run(five.Sub(w.now) - lease/2)
		before := w.managers[0]
		w.start()
		w.run(lease/2 - time.Millisecond)
		w.begin()
		w.end = five
		w.run(lease / 2)
		w.kill(before)
	}, all: true, outcome: outcome{shows: capped}},
	{name: "TheManagerBeforeHasALateCache", do: func(w *world) {
		before := w.managers[0]
		before.late = always(lease)
		w.edit(w.half(), unwanted)
		w.start()
		w.run(lease - time.Second)
		w.kill(before)
	}, half: true, outcome: outcome{shows: warmUp}},
	{name: "NobodyLeadsOverFive", do: func(w *world) {
		w.run(five.Sub(w.now) - time.Minute)
		w.kill(w.managers[0])
		w.run(31 * time.Minute)
		w.end = five
		w.begin()
		w.start()
	}, all: true, outcome: outcome{shows: warmUp}},
}

// writing are writes that fail, or that seem to.
var writing = []input{
	{name: "AWebhookRefusesDeletionsForAMinute", do: func(w *world) {
		w.refuse = refuses("delete", "Machine")
		w.edit(w.half(), unwanted)
		w.run(time.Minute)
		w.refuse = nil
	}, half: true, outcome: outcome{shows: capped, held: time.Minute}},
	{name: "AWebhookRefusesDeletionsOverARestart", do: func(w *world) {
		w.refuse = refuses("delete", "Machine")
		w.edit(w.half(), unwanted)
		w.run(2 * time.Minute)
		w.refuse = nil
		w.restart()
	}, half: true, outcome: outcome{shows: capped, held: 2 * time.Minute}},
	{name: "AWebhookRefusesMachinesForAMinute", do: func(w *world) {
		w.refuse = refuses("patch", "Machine")
		w.edit(w.half(), unwanted)
		w.run(time.Minute)
		w.refuse = nil
	}, half: true, outcome: outcome{shows: capped, held: time.Minute, owed: 2 * time.Minute}}, // Nothing can be requested meanwhile.
	{name: "AWebhookLocksAdmittedMachines", do: func(w *world) {
		locked := map[id]bool{}
		w.refuse = func(x write) error {
			if x.id.kind != "Machine" || x.status {
				return nil
			}
			if x.verb == "delete" && len(locked) < w.size/20 {
				locked[x.id] = true
			}
			if locked[x.id] {
				return apierrors.NewForbidden(resource(x.id), x.id.name, fmt.Errorf("denied by a webhook"))
			}
			return nil
		}
		w.edit(w.half(), unwanted)
		w.run(20 * time.Minute)
		if left := len(w.left); left < w.size/2-w.size/20 {
			w.breaks("%d leave while the Machines of others are locked", left)
		}
		w.refuse = nil
	}, half: true, outcome: outcome{shows: capped}},
	{name: "RecordsAreForged", do: func(w *world) {
		at := func(d time.Duration) string { return w.now.Add(d).UTC().Format(time.RFC3339) }
		w.edit(w.half(), unwanted)
		w.run(5 * time.Second)
		for n, record := range []string{
			`{"lane":"exempt","reason":"WindowClosed","since":"` + at(0) + `","machineUID":"UID"}`,
			`{"lane":"exempt","reason":"KillSwitch","since":"` + at(0) + `","machineUID":"UID"}`,
			`{"lane":"unscheduled","reason":"WindowClosed","requestedAt":"` + at(0) + `","expiredAt":"9999-01-01T00:00:00Z","machineUID":"UID"}`,
			`{"lane":"scheduled","reason":"WindowClosed","since":"9999-01-01T00:00:00Z","machineUID":"UID"}`,
			`{"lane":"x","reason":"y","requestedAt":"9999-12-31T23:59:59-23:00","machineUID":"UID"}`,
			`{"lane":"unscheduled","reason":"External","since":"` + at(-time.Hour) + `","machineUID":"UID"}`,
			`{"lane":"unscheduled","reason":"WindowClosed","requestedAt":"` + at(0) + `","machineUID":"UID","waiting":{"reason":"` + strings.Repeat("x", 200_000) + `"}}`,
			`{"lane":"unscheduled","reason":"WindowClosed","requestedAt":"` + at(0) + `","machineUID":""}`,
			`{"reason":`,
		} {
			for _, i := range []int{n, w.size - 1 - n} {
				w.api.change(machine(i), func(obj client.Object) {
					metav1.SetMetaDataAnnotation(&obj.(*clusterv1.Machine).ObjectMeta, v1alpha1.DepartureAnnotation, strings.ReplaceAll(record, "UID", string(obj.GetUID())))
				})
			}
		}
	}, half: true, outcome: outcome{shows: capped, may: func(w *world) []int { return w.from(w.size-9, w.size) }, makes: true}},
	{name: "EveryOtherWriteIsAConflict", do: func(w *world) {
		w.refuse = w.sometimes(2, func(x write) error {
			w.api.change(x.id, func(client.Object) {}) // Another client was faster.
			return apierrors.NewConflict(resource(x.id), x.id.name, errLost)
		})
		w.edit(w.half(), unwanted)
		w.run(3 * time.Minute)
		w.refuse = nil
	}, half: true, outcome: outcome{shows: capped}},
	{name: "EveryThirdAnswerIsLost", do: func(w *world) {
		lost := w.sometimes(3, func(write) error { return errLost })
		w.lose = func(x write) bool { return lost(x) != nil }
		w.edit(w.half(), unwanted)
		w.run(3 * time.Minute)
		w.lose = nil
	}, half: true, outcome: outcome{shows: capped}},
	{name: "TheAnswersToDeletionsAreLostOverARestart", do: func(w *world) {
		w.lose = func(x write) bool { return x.verb == "delete" }
		w.edit(w.half(), unwanted)
		w.run(30 * time.Second)
		w.restart()
		w.run(30 * time.Second)
		w.lose = nil
	}, half: true, outcome: outcome{shows: capped}},
	// Admissions come before the answers that show the cap: with 1,000 machines, the first answer takes minutes.
	{name: "AFewWritesAreSlow", do: func(w *world) {
		slow := w.sometimes(50, func(write) error { return errLost })
		w.slow = func(x write) time.Duration {
			if x.id.kind == "Machine" && slow(x) != nil {
				return 11 * time.Second
			}
			return 0
		}
		w.edit(w.half(), unwanted)
		w.run(3 * time.Minute)
		w.slow = nil
	}, half: true, outcome: outcome{shows: capped, owed: 3 * time.Minute}},
	{name: "NothingCanBeWrittenOrRead", do: func(w *world) {
		w.refuse = func(write) error { return apierrors.NewInternalError(errLost) }
		w.unreadable = func(string) error { return apierrors.NewInternalError(errLost) }
		w.edit(w.half(), unwanted)
		w.run(2 * time.Minute)
		w.refuse, w.unreadable = nil, nil
	}, half: true, outcome: outcome{shows: capped, held: 2 * time.Minute, owed: 4 * time.Minute}},
	{name: "EveryMachineIsRestoredInItsDeparture", do: func(w *world) {
		reasons := []v1alpha1.DepartureReason{v1alpha1.WindowClosed, v1alpha1.KilledByPerson, v1alpha1.ReclaimedByOwner}
		for _, i := range w.all() {
			w.api.change(machine(i), func(obj client.Object) {
				of := v1alpha1.NewDeparture(reasons[i%3], w.now, "before")
				of.MachineUID = "before"
				metav1.SetMetaDataAnnotation(&obj.(*clusterv1.Machine).ObjectMeta, v1alpha1.DepartureAnnotation, of.String())
			})
		}
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed, makes: true}},
	{name: "EveryMachineGetsTheRecordOfAnother", do: func(w *world) {
		text := v1alpha1.NewDeparture(v1alpha1.WindowClosed, w.now, "another")
		for _, i := range w.half() {
			w.api.change(machine(i), func(obj client.Object) {
				of := text
				of.MachineUID = obj.GetUID()
				metav1.SetMetaDataAnnotation(&obj.(*clusterv1.Machine).ObjectMeta, v1alpha1.DepartureAnnotation, of.String())
			})
		}
		w.edit(w.half(), unwanted)
	}, half: true, outcome: outcome{}},
}

// urgent are machines that must leave at once.
var urgent = []input{
	{name: "AllKillSwitches", do: func(w *world) { w.flip(w.all()) }, all: true, outcome: outcome{shows: string(lifecycle.KillSwitchActing)}},
	{name: "AFewKillSwitches", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.run(5 * time.Second)
		w.flip(w.from(w.size-8, w.size))
	}, outcome: outcome{shows: capped, some: func(w *world) []int { return append(w.half(), w.from(w.size-8, w.size)...) }}},
	{name: "AllOwnersAsk", do: func(w *world) { w.requestMachines(w.all()) }, all: true, outcome: outcome{shows: v1alpha1.EmergencySurgeEvent}},
	{name: "FiftyOwnersAskWhileAllAreHeld", do: func(w *world) {
		w.edit(w.all(), unwanted)
		w.run(5 * time.Second)
		w.requestMachines(w.from(w.size-w.size/20, w.size))
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "FiftyOwnersAskWhileAllWait", do: func(w *world) {
		w.edit(w.all(), unwanted)
		w.run(confirmed + time.Minute)
		w.requestMachines(w.stillThere(w.size / 20))
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "OwnersAskEverySecondWhileHalfWait", do: func(w *world) {
		w.edit(w.half(), unwanted)
		for range 30 {
			w.run(time.Second)
			w.requestMachines(w.stillThere(1))
		}
	}, outcome: outcome{shows: capped, some: (*world).half, may: (*world).all}},
	{name: "OwnersAskWhileTheManagerWarmsUp", do: func(w *world) {
		w.edit(w.half(), unwanted)
		w.restart()
		w.run(time.Second)
		w.requestMachines(w.from(0, w.size/20))
	}, half: true, outcome: outcome{shows: warmUp}},
	{name: "OwnersAskWhileTheClockIsSuspect", do: func(w *world) {
		w.apiAhead = 10 * time.Minute
		w.run(5 * time.Second)
		w.begin()
		w.edit(w.half(), unwanted)
		w.requestMachines(w.from(0, w.size/20))
		w.run(time.Minute)
		w.apiAhead = 0
	}, half: true, outcome: outcome{shows: suspect, held: time.Minute}},
	{name: "OwnersAskWhileTheCacheIsLate", do: func(w *world) {
		w.managers[0].late = always(3 * time.Second)
		w.edit(w.half(), unwanted)
		w.run(10 * time.Second)
		w.requestMachines(w.stillThere(w.size / 20))
	}, outcome: outcome{shows: capped, owed: 7 * time.Second, some: (*world).half, may: (*world).all}},
}

// pausing are pauses, and their effects.
var pausing = []input{
	{name: "TheClusterIsPausedDuringAWipe", do: func(w *world) {
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		w.edit(w.all(), unwanted)
		w.run(5 * time.Minute)
		w.stay()
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	}, all: true, outcome: outcome{shows: quarantined, held: confirmed}},
	{name: "TheClusterIsPausedOverFive", do: func(w *world) {
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		w.run(five.Sub(w.now) + 30*time.Minute)
		w.stay()
		w.end = five
		w.editCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	}, all: true, outcome: outcome{shows: capped}},
	{name: "ActuationIsPausedOverFive", do: func(w *world) {
		w.paused = true
		w.restart()
		w.run(five.Sub(w.now) + 30*time.Minute)
		w.stay()
		w.end = five
		w.paused = false
		w.restart()
	}, all: true, outcome: outcome{shows: warmUp}},
	{name: "ActuationIsPausedDuringAWipe", do: func(w *world) {
		w.paused = true
		w.restart()
		w.run(time.Minute)
		w.begin()
		w.edit(w.all(), unwanted)
		w.run(5 * time.Minute)
		w.paused = false
		w.restart()
	}, all: true, outcome: outcome{shows: v1alpha1.ActuationPausedReason, held: 5*time.Minute + lease + confirmed}},
	{name: "OwnersAskWhileActuationIsPaused", do: func(w *world) {
		w.paused = true
		w.restart()
		w.run(time.Minute)
		w.begin()
		w.edit(w.half(), unwanted)
		w.requestMachines(w.from(0, w.size/20))
		w.run(time.Minute)
		w.paused = false
		w.restart()
	}, half: true, outcome: outcome{shows: v1alpha1.EmergencySuppressedEvent, owed: time.Minute + evaluation, held: time.Minute}},
}

func always(d time.Duration) func(change) time.Duration {
	return func(change) time.Duration { return d }
}

func refuses(verb, kind string) func(write) error {
	return func(x write) error {
		if x.verb == verb && x.id.kind == kind && !x.status {
			return apierrors.NewForbidden(resource(x.id), x.id.name, fmt.Errorf("denied by a webhook"))
		}
		return nil
	}
}

// sometimes makes one in n writes return err.
func (w *world) sometimes(n int, err func(write) error) func(write) error {
	return func(x write) error {
		if w.rand.IntN(n) > 0 {
			return nil
		}
		return err(x)
	}
}

// setClock sets the manager's clock wrong for some time, and meanwhile enqueues all objects.
func (w *world) setClock(ahead, lasts time.Duration) {
	w.Helper()
	for _, a := range []time.Duration{ahead, 0} {
		for _, m := range w.managers {
			m.ahead = a
			m.hear()
		}
		w.editCluster(func(c *clusterv1.Cluster) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, "storm/clock", fmt.Sprint(a, w.now))
		})
		if a == ahead {
			w.run(lasts)
		}
	}
}

// lose30 removes all objects of some kinds from the caches for half a minute.
func (w *world) lose30(kinds ...string) {
	w.Helper()
	for _, m := range w.managers {
		for _, kind := range kinds {
			for _, obj := range inOrder(m.cache[kind]) {
				m.show(change{id: idOf(obj)})
			}
		}
	}
	w.run(30 * time.Second)
	for _, m := range w.managers {
		for _, kind := range kinds {
			for _, obj := range w.api.list(kind) {
				m.show(change{id: idOf(obj), to: obj})
			}
		}
	}
}

func (w *world) setUnreachable(is bool) {
	w.unreachable = is
	for _, m := range w.managers {
		for _, wake := range m.reach {
			wake()
		}
	}
}

// stillThere returns n machines that have not started to leave, and that no owner has requested.
func (w *world) stillThere(n int) (places []int) {
	for _, of := range w.active {
		if _, asked := w.owners[of]; !asked {
			var i int
			if _, err := fmt.Sscanf(strings.TrimPrefix(of, "box-"), "%d", &i); err == nil {
				places = append(places, i)
			}
		}
	}
	slices.Sort(places)
	return places[max(0, len(places)-n):]
}
