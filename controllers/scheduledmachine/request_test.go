// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	planner "github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// A crowd is a set of running machines of one Cluster, with the planner of their departures.
type crowd struct {
	*world
	all []*world
}

// newCrowd returns n running machines, of which one may start to leave in ten seconds. Each has its own priority; the
// last has the lowest.
func newCrowd(t *testing.T, n int, change func(*v1alpha1.ScheduledMachine)) *crowd {
	t.Helper()
	c := &crowd{world: newWorld(t, change)}
	c.all = []*world{c.world}
	for i := 1; i < n; i++ {
		other := c.beside(c.sm.Namespace, fmt.Sprint("box-", i), func(sm *v1alpha1.ScheduledMachine) {
			if change != nil {
				change(sm)
			}
			sm.Spec.Priority = new(int32(50 - i))
		})
		other.r, other.planned = c.r, true
		c.all = append(c.all, other)
	}
	for _, w := range c.all {
		w.running()
	}
	c.planned = true
	c.lead()
	c.clock.SetTime(c.clock.Now().Add(time.Minute)) // The planner has passed its start delay.
	return c
}

// lead starts a planner that becomes the leader.
func (c *crowd) lead() {
	c.Helper()
	c.planner = &planner.Reconciler{
		Clock: c.clock, Actuate: c.r.Actuate, Cap: 50_000, Lease: 15 * time.Second,
		Reader: c.Indexed(c.Client, wake.ClusterIndex, clusterNames), Live: c.Client, Recorder: events.NewFakeRecorder(100),
	}
	_, err := c.planner.Reconcile(c.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c.cluster)})
	c.Must(err)
}

// restart starts another manager without in-memory state.
func (c *crowd) restart() {
	c.Helper()
	c.r = c.reconciler(c.Recorded(interceptor.Funcs{}))
	for _, w := range c.all {
		w.r = c.r
	}
	c.lead()
}

// refuse makes the API server reject the deletion of Machines.
func (c *crowd) refuse() {
	c.Fail = func(n int) (before, after error) {
		if c.Writes[n] == "delete Machine" {
			return errors.New("a webhook is down"), nil
		}
		return nil, nil
	}
}

// look reconciles all machines and runs the planner, until the machines that may leave do.
func (c *crowd) look() (next time.Duration) {
	c.Helper()
	for range 3 {
		for _, w := range c.all {
			w.reconcile()
		}
		res, err := c.planner.Reconcile(c.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c.cluster)})
		c.Must(err)
		next = res.RequeueAfter
	}
	for _, w := range c.all {
		w.reconcile()
	}
	return next
}

// leaving returns the indexes of the machines that leave.
func (c *crowd) leaving() (found []int) {
	c.Helper()
	for i, w := range c.all {
		if m, ok := w.machine(); !ok || !m.DeletionTimestamp.IsZero() {
			found = append(found, i)
		}
	}
	return found
}

// lane returns the lane in the Machine's departure record.
func (w *world) lane() v1alpha1.DepartureLane {
	w.Helper()
	m, _ := w.machine()
	d, _ := children.DepartureOf(m, w.clock.Now())
	return d.Lane
}

func five(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"9-16"} }

// TestMachinesLeaveInTurn covers three windows that end at the same instant.
func TestMachinesLeaveInTurn(t *testing.T) {
	c := newCrowd(t, 3, five)
	c.clock.SetTime(monday.Add(8*time.Hour + time.Second)) // 17:00:00
	for left := range 3 {
		next := c.look()
		if got := c.leaving(); len(got) != left+1 || got[0] != 2-left {
			t.Fatalf("%v leave: the least important come first, one at a time", got)
		}
		for i, w := range c.all[:2-left] {
			w.want(v1alpha1.PhaseActive, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.BlastRadiusCapReason)
			if end := w.sm.Status.NextCleanup; !end.Time.Equal(monday.Add(8*time.Hour + time.Second)) {
				t.Errorf("machine %d does not say since when it is to leave: %v", i, end)
			}
			if d := w.sm.Status.Departure; d == nil || d.Reason != v1alpha1.WindowClosed || d.Lane != v1alpha1.ScheduledLane ||
				d.RequestedTime == nil || d.AdmittedTime != nil || d.DeadlineTime != nil {
				t.Errorf("machine %d waits with status.departure %+v", i, d)
			}
		}
		if w := c.all[2-left]; w.lane() != v1alpha1.ScheduledLane || conditions.Has(w.sm, v1alpha1.DepartureGatedCondition) {
			t.Errorf("lane %s, conditions %v", w.lane(), w.sm.Status.Conditions)
		}
		if d := c.all[2-left].sm.Status.Departure; d == nil || d.RequestedTime == nil || !d.AdmittedTime.Equal(new(metav1.NewTime(c.clock.Now().UTC()))) ||
			d.DeadlineTime.Sub(d.AdmittedTime.Time) != children.GraceOf(c.all[2-left].sm) {
			t.Errorf("at %s it leaves with status.departure %+v", c.clock.Now(), d)
		}
		if left < 2 && next != departurecap.Window {
			t.Errorf("the planner looks again in %v", next)
		}
		c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	}
}

// TestALineNamesTheRunOfThePlanner covers two departures that two runs of the planner admit.
func TestALineNamesTheRunOfThePlanner(t *testing.T) {
	c, out := newCrowd(t, 2, five), &bytes.Buffer{}
	c.r.Actuate = actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, c.Recorded(interceptor.Funcs{}))
	c.planner.Actuate = c.r.Actuate
	c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
	var want []int64
	for range 2 {
		c.look()
		want = append(want, c.clock.Now().UnixMilli())
		c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	}
	var got []int64
	for text := range strings.Lines(out.String()) {
		var l audit.Line
		c.Must(json.Unmarshal([]byte(text), &l))
		if l.Kind == audit.Depart && !slices.Contains(got, l.Cycle) {
			got = append(got, l.Cycle)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines of runs %v, want %v:\n%s", got, want, out)
	}
}

// TestADeferredDepartureWritesNothing checks that a deferred departure causes no writes while nothing changes.
func TestADeferredDepartureWritesNothing(t *testing.T) {
	c := newCrowd(t, 2, five)
	c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
	c.look()
	c.Writes = nil
	c.clock.SetTime(c.clock.Now().Add(5 * time.Second))
	c.look()
	if len(c.Writes) != 0 {
		t.Errorf("wrote %v", c.Writes)
	}
}

// TestAWindowThatIsExtendedKeepsTheMachine extends the window while the departure is deferred.
func TestAWindowThatIsExtendedKeepsTheMachine(t *testing.T) {
	c := newCrowd(t, 2, five)
	c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
	c.look()
	c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"9-20"} })
	c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	c.look()
	if got := c.leaving(); len(got) != 1 || got[0] != 1 {
		t.Errorf("%v leave", got)
	}
	if conditions.Has(c.sm, v1alpha1.DepartureGatedCondition) {
		t.Error("it still says that it is to leave")
	}
}

// TestADepartureWithoutAnAnnouncedEndIsUnscheduled edits a schedule so that its window is over.
func TestADepartureWithoutAnAnnouncedEndIsUnscheduled(t *testing.T) {
	for name, tc := range map[string]struct {
		leave func(*crowd)
		lane  v1alpha1.DepartureLane
	}{
		"Edit": {func(c *crowd) {
			c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20-22"} })
		}, v1alpha1.UnscheduledLane},
		"EditSoonBefore": {func(c *crowd) {
			c.clock.SetTime(monday.Add(8*time.Hour - 5*time.Minute))
			c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"8-16"} })
			c.look()
			c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
		}, v1alpha1.UnscheduledLane},
		"EditLongBefore": {func(c *crowd) {
			c.clock.SetTime(monday.Add(8*time.Hour - 15*time.Minute))
			c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"8-16"} })
			c.look()
			c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
		}, v1alpha1.ScheduledLane},
		"Deletion": {func(c *crowd) { c.Must(c.Client.Delete(c.Context(), c.sm)) }, v1alpha1.UnscheduledLane},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 1, five)
			tc.leave(c)
			c.look()
			if got := c.leaving(); len(got) != 1 || c.lane() != tc.lane {
				t.Errorf("%v leave in lane %q, want %s", got, c.lane(), tc.lane)
			}
		})
	}
}

// TestAMachineDeletedByAnotherClientReportsItsWait starts another departure just before.
func TestAMachineDeletedByAnotherClientReportsItsWait(t *testing.T) {
	c := newCrowd(t, 2, five)
	c.all[1].edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20-22"} })
	c.look()
	m, _ := c.machine()
	c.Must(c.Client.Delete(c.Context(), m))
	c.look()
	if cond := conditions.Get(c.sm, v1alpha1.DepartureGatedCondition); cond == nil || cond.Reason != v1alpha1.BlastRadiusCapReason {
		t.Errorf("it says %+v", cond)
	}
	c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	c.look()
	if conditions.Has(c.sm, v1alpha1.DepartureGatedCondition) {
		t.Error("in its turn it still waits")
	}
}

// TestExemptDeparturesDoNotWait starts another departure just before, and checks the exempt ones.
func TestExemptDeparturesDoNotWait(t *testing.T) {
	for name, leave := range map[string]func(*crowd){
		"KillSwitch": func(c *crowd) { c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }) },
		"ClusterGoes": func(c *crowd) {
			c.hold(c.cluster)
			c.Must(c.Client.Delete(c.Context(), c.cluster))
		},
		"ClusterAndObjectGo": func(c *crowd) {
			c.hold(c.cluster)
			c.Must(c.Client.Delete(c.Context(), c.sm))
			c.Must(c.Client.Delete(c.Context(), c.cluster))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 2, five)
			c.all[1].edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20-22"} })
			c.look()
			if got := c.leaving(); len(got) != 1 || got[0] != 1 {
				t.Fatalf("%v leave", got)
			}
			leave(c)
			c.reconcile()
			c.reconcile()
			if got := c.leaving(); len(got) != 2 {
				t.Errorf("%v leave", got)
			}
		})
	}
}

// TestARestartKeepsTheOrderOfRequests restarts the manager while one machine leaves, and another one, whose window end
// was announced, is deferred.
func TestARestartKeepsTheOrderOfRequests(t *testing.T) {
	c := newCrowd(t, 2, five)
	c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
	c.look()
	c.clock.SetTime(c.clock.Now().Add(5 * time.Second))
	c.restart()
	c.clock.SetTime(c.clock.Now().Add(departurecap.Window - time.Second))
	if next := c.look(); next != time.Second {
		t.Errorf("the planner looks again in %v", next)
	}
	if got := c.leaving(); len(got) != 1 {
		t.Fatalf("%v leave before the planner knows what has left", got)
	}
	c.want(v1alpha1.PhaseActive, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.WarmUpReason)
	c.clock.SetTime(c.clock.Now().Add(time.Second))
	c.look()
	if got := c.leaving(); len(got) != 2 || c.lane() != v1alpha1.ScheduledLane {
		t.Errorf("%v leave, in lane %s", got, c.lane())
	}
}

// TestAFailedDeletionIsRetried rejects all deletions for a while. The manager restarts meanwhile: the departures are
// recorded then, but no machine has left.
func TestAFailedDeletionIsRetried(t *testing.T) {
	c := newCrowd(t, 3, five)
	end := monday.Add(8*time.Hour + time.Second)
	c.clock.SetTime(end)
	c.refuse()
	recorded := false
	for look := 0; look < 12 || !recorded && look < 20; look++ {
		c.look()
		recorded = slices.ContainsFunc(c.all, func(w *world) bool {
			m, _ := w.machine()
			return children.CanWithdraw(m)
		})
		c.clock.SetTime(c.clock.Now().Add(departurecap.Window / 2))
	}
	for i, w := range c.all {
		if !w.sm.Status.NextCleanup.Time.Equal(end) {
			t.Errorf("machine %d does not say any more that this end was announced: %v", i, w.sm.Status.NextCleanup)
		}
	}
	if !recorded {
		t.Fatal("none has its departure on record")
	}
	c.restart()
	c.Fail = nil
	if c.look(); len(c.leaving()) > 0 {
		t.Fatalf("%v leave before the planner is warm", c.leaving())
	}
	c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	for left := range 3 {
		c.look()
		if got := c.leaving(); len(got) != left+1 {
			t.Fatalf("%v leave, %d in ten seconds", got, len(got)-left)
		}
		c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	}
	if got := c.lane(); got != v1alpha1.ScheduledLane {
		t.Errorf("in lane %s", got)
	}
}

// TestAnExpiredAdmissionIsReportedAsHeld rejects a deletion until the admission of the machine expires.
func TestAnExpiredAdmissionIsReportedAsHeld(t *testing.T) {
	c := newCrowd(t, 1, five)
	c.clock.SetTime(monday.Add(8*time.Hour + time.Second))
	c.refuse()
	c.look()
	if _, held := c.heldBy(); held {
		t.Fatal("it has not tried")
	}
	c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	c.look()
	m, _ := c.machine()
	if state, _ := children.StateOf(m, c.clock.Now()); state == children.Admitted || m.Annotations[v1alpha1.PreDrainHookAnnotation] == "" {
		t.Errorf("it waits, and has %v", m.Annotations)
	}
	for range 3 { // Its next admissions make no difference.
		c.want(v1alpha1.PhaseError, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ReconcileFailedReason)
		if conditions.Has(c.sm, v1alpha1.DepartureGatedCondition) {
			t.Error("no rail holds it")
		}
		c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
		c.look()
	}
	c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	c.Fail = nil
	for range 2 { // An expired admission counts as a start for one Window.
		c.look()
		c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
	}
	if len(c.leaving()) != 1 || c.sm.Status.Phase != v1alpha1.PhaseShuttingDown {
		t.Errorf("it does not leave in its next turn: phase %s", c.sm.Status.Phase)
	}
}

// TestAFailedKillSwitchDoesNotAffectTheNextDeparture rejects the removal, turns the kill switch off, and starts
// another departure just before.
func TestAFailedKillSwitchDoesNotAffectTheNextDeparture(t *testing.T) {
	closed := func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"20-22"} }
	for name, meanwhile := range map[string]func(*crowd){
		"AtOnce":  func(*crowd) {},
		"Refused": func(c *crowd) { c.refuse(); c.look(); c.Fail = nil },
		"ManagerEnds": func(c *crowd) { // The record is removed; no other write follows.
			c.Fail = func(n int) (before, after error) {
				if n > 0 {
					before = errors.New("it has ended")
				}
				return before, nil
			}
			c.Writes = nil
			c.reconcile()
			c.Fail = nil
			c.restart()
			c.clock.SetTime(c.clock.Now().Add(time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 2, five)
			c.refuse()
			c.edit(killed)
			c.reconcile()
			m, _ := c.machine()
			if d, _ := children.DepartureOf(m, c.clock.Now()); !d.Urgent() || len(d.Skips) == 0 || !m.DeletionTimestamp.IsZero() {
				t.Fatalf("on record is %+v", d)
			}
			c.reconcile()
			if c.lane() != v1alpha1.ExemptLane {
				t.Errorf("it is on, and on record in lane %s", c.lane())
			}
			c.Fail = nil
			c.clock.SetTime(c.clock.Now().Add(time.Minute))
			c.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = false; closed(sm) })
			meanwhile(c)
			c.clock.SetTime(c.clock.Now().Add(time.Minute))
			c.all[1].edit(closed)
			c.look()
			if got := c.leaving(); len(got) != 1 {
				t.Fatalf("%v leave", got)
			}
			for i, w := range c.all {
				m, _ := w.machine()
				_, held := m.Annotations[v1alpha1.PreDrainHookAnnotation]
				_, admitted := children.DepartureOf(m, c.clock.Now())
				if stays := m.DeletionTimestamp.IsZero(); stays && (!held || admitted) {
					t.Errorf("machine %d waits, and has %v", i, m.Annotations)
				}
			}
			c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
			c.look()
			m, _ = c.machine()
			if _, undrained := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; undrained || len(c.leaving()) != 2 || c.lane() != v1alpha1.UnscheduledLane {
				t.Errorf("%v leave, in lane %s, with %v", c.leaving(), c.lane(), m.Annotations)
			}
		})
	}
}

// TestACapOutlivesItsCluster deletes a Cluster, and the ScheduledMachines with their machines.
func TestACapOutlivesItsCluster(t *testing.T) {
	c := newCrowd(t, 2, five)
	c.Must(c.Client.Delete(c.Context(), c.cluster))
	for _, w := range c.all {
		c.Must(c.Client.Delete(c.Context(), w.sm))
	}
	c.look()
	if got := c.leaving(); len(got) != 1 {
		t.Errorf("%v leave at once", got)
	}
}

// heldBy returns the value of our hook on the Machine, and whether it is set.
func (w *world) heldBy() (value string, held bool) {
	w.Helper()
	m, _ := w.machine()
	value, held = m.Annotations[v1alpha1.PreDrainHookAnnotation]
	return value, held
}

func killed(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }
