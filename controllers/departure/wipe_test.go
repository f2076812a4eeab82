// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// newGuarded returns a manager with the wipe quarantine after its warm-up.
func newGuarded(t *testing.T, machines int) *world {
	t.Helper()
	w := newWorld(t, machines)
	w.guarded = true
	w.start()
	w.warm()
	return w
}

// wipe makes all machines due except the given number.
func (w *world) wipe(lane v1alpha1.DepartureLane, kept int) {
	w.Helper()
	for i := range w.machines - kept {
		w.leaves(lane, i)
	}
}

// wantHeld checks the metric of the checks that saw a wipe.
func (w *world) wantHeld(looks string) {
	w.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.r.Collector())
	want := `# HELP fivespot_wipe_quarantined Consecutive checks that saw nearly all machines about to leave at once, while they are held; 0 if none is held. By namespace and Cluster.
# TYPE fivespot_wipe_quarantined gauge
fivespot_wipe_quarantined{cluster="lab",namespace="farm"} ` + looks + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fivespot_wipe_quarantined"); err != nil {
		w.Error(err)
	}
}

// look runs the planner. It checks how many machines start, how many live lists there were, and the metric.
func (w *world) look(began, listed int, looks string) (next time.Duration) {
	w.Helper()
	next = w.plan()
	if got := w.begin(); len(got) != began || w.listed != listed {
		w.Errorf("at %s %v start after %d lists, want %d and %d", w.clock.Now().Format(time.TimeOnly), got, w.listed, began, listed)
	}
	w.wantHeld(looks)
	return next
}

// TestAWipeIsHeldUntilItIsConfirmed makes nearly all machines due.
func TestAWipeIsHeldUntilItIsConfirmed(t *testing.T) {
	w := newGuarded(t, 40)
	w.look(0, 0, "0")
	w.wipe(v1alpha1.UnscheduledLane, 3)
	if next := w.look(0, 1, "1"); next != rails.Apart {
		t.Errorf("looks again in %s", next)
	}
	if v := w.waits(0); v.Reason != v1alpha1.WipeQuarantineReason {
		t.Errorf("%+v", v)
	}
	w.after(rails.Apart - 1)
	w.look(0, 1, "1") // It is too early for the next check, whatever enqueues the Cluster.
	w.after(1)
	w.look(0, 2, "2")
	w.after(rails.Apart)
	w.look(2, 3, "0")
	w.after(rails.Apart)
	w.look(1, 3, "0")
	if told := w.events(); len(told) != 3 || !strings.HasPrefix(told[0], "Warning "+v1alpha1.WipeQuarantinedEvent+" 37 of 40 machines") ||
		!strings.HasPrefix(told[1], "Warning "+v1alpha1.WipeConfirmedEvent+" 37 of 40 machines") {
		t.Errorf("told %q", told)
	}
}

// TestAWipeOfTheFleetIsHeld makes all machines of a small Cluster due, while the machines of another Cluster would leave or
// stay.
func TestAWipeOfTheFleetIsHeld(t *testing.T) {
	other := client.ObjectKey{Namespace: "farm", Name: "other"}
	w := newGuarded(t, 5)
	w.r.SetShare(other, rails.Share{Baseline: 60, Kept: 1})
	w.look(0, 0, "0") // No machine of this Cluster is due.
	w.wipe(v1alpha1.UnscheduledLane, 0)
	w.look(0, 1, "1")
	if v := w.waits(0); v.Reason != v1alpha1.WipeQuarantineReason {
		t.Errorf("%+v", v)
	}
	w.after(rails.Apart)
	w.look(0, 2, "2")
	w.after(rails.Apart)
	w.look(1, 3, "0")
	if told := w.events(); len(told) == 0 || !strings.HasPrefix(told[0], "Warning "+v1alpha1.WipeQuarantinedEvent+" 64 of 65 machines of all Clusters would") {
		t.Errorf("told %q", told)
	}

	w = newGuarded(t, 5)
	w.r.SetShare(other, rails.Share{Baseline: 60, Kept: 1})
	w.wipe(v1alpha1.UnscheduledLane, 0)
	w.look(0, 1, "1")
	w.r.SetShare(other, rails.Share{Baseline: 60, Kept: 7})
	w.after(rails.Apart)
	w.look(1, 1, "0")
}

// TestAClusterCountsFromTheWarmUpOn has a Cluster without candidates, which is not planned again after the warm-up. If it
// did not count, the candidates of other Clusters would look like nearly all machines.
func TestAClusterCountsFromTheWarmUpOn(t *testing.T) {
	w := newWorld(t, 40)
	w.guarded = true
	w.start()
	w.plan()
	if got := w.r.ShareOf(lab); got != (rails.Share{Baseline: 40, Kept: 40}) {
		t.Errorf("in the warm-up, the share is %+v", got)
	}
}

// TestWhatIsNoWipe has departures that need no live list.
func TestWhatIsNoWipe(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		machines int
		lane     v1alpha1.DepartureLane
		kept     int
		began    int
	}{
		"Announced":    {"Five o'clock is none.", 40, v1alpha1.ScheduledLane, 0, 2},
		"OneInTenStay": {"Nearly all are more than nine in ten.", 40, v1alpha1.UnscheduledLane, 4, 2},
		"SmallCluster": {"Of nine all may leave on any day.", 9, v1alpha1.UnscheduledLane, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGuarded(t, tc.machines)
			w.wipe(tc.lane, tc.kept)
			w.plan()
			if got := w.begin(); len(got) != tc.began || w.listed != 0 {
				t.Errorf("%s: %v start after %d lists", tc.reason, got, w.listed)
			}
		})
	}
}

// TestAWipeThatIsUndone makes the machines wanted again between two checks.
func TestAWipeThatIsUndone(t *testing.T) {
	w := newGuarded(t, 40)
	w.wipe(v1alpha1.UnscheduledLane, 0)
	w.look(0, 1, "1")
	for i := range 39 {
		w.stays(i)
	}
	w.look(1, 1, "0")
}

// TestACheckThatFailsNeitherConfirmsNorResets has live lists that fail or differ from the cache.
func TestACheckThatFailsNeitherConfirmsNorResets(t *testing.T) {
	for name, tc := range map[string]func(w *world, is bool){
		"Fails": func(w *world, is bool) {
			if w.failing = nil; is {
				w.failing = errors.New("broken")
			}
		},
		"Differs": func(w *world, is bool) {
			w.newer = map[string]bool{}
			for i := range 40 {
				w.newer[box(i)] = is
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGuarded(t, 40)
			tc(w, true)
			w.wipe(v1alpha1.UnscheduledLane, 0)
			if next := w.look(0, 1, "1"); next != rails.Apart {
				t.Errorf("looks again in %s", next)
			}
			tc(w, false)
			w.after(rails.Apart)
			w.look(0, 2, "1")
			w.after(rails.Apart)
			w.look(0, 3, "2")
			tc(w, true)
			w.after(rails.Apart)
			w.look(0, 4, "2") // The check neither confirms nor resets.
			tc(w, false)
			w.after(rails.Apart)
			w.look(2, 5, "0")
		})
	}
}

// TestASlowListHoldsNoOtherLane has live lists that take longer than a run of the planner.
func TestASlowListHoldsNoOtherLane(t *testing.T) {
	w := newGuarded(t, 40)
	w.slowList = 12 * time.Second
	w.wipe(v1alpha1.UnscheduledLane, 1)
	w.leaves(v1alpha1.ScheduledLane, 39)
	for w.listed < 2 {
		next := w.plan()
		if slices.Equal(w.begin(), []int{39}) {
			return
		}
		w.after(max(next, time.Millisecond))
	}
	t.Error("a machine whose window has ended waits for the lists of a quarantine")
}

// confirm checks that three live lists confirm a wipe, and how many machines start to leave then.
func (w *world) confirm(began int) {
	w.Helper()
	w.look(0, 1, "1")
	w.after(rails.Apart)
	w.look(0, 2, "2")
	w.after(rails.Apart)
	w.look(began, 3, "0")
}

// TestAWipeThatComesWithTheRestart starts the manager while all machines are due.
func TestAWipeThatComesWithTheRestart(t *testing.T) {
	w := newGuarded(t, 40)
	w.wipe(v1alpha1.UnscheduledLane, 0)
	w.start()
	w.plan()
	w.after(lease)
	w.confirm(2)
}

// TestAWipeOfMachinesThatJoinedInAWarmUp joins all machines of a Cluster but one during the warm-up, and makes
// all due.
func TestAWipeOfMachinesThatJoinedInAWarmUp(t *testing.T) {
	w := newWorld(t, 1)
	w.guarded = true
	w.start()
	w.plan()
	for range 39 {
		w.join(true)
	}
	w.plan()
	w.wipe(v1alpha1.UnscheduledLane, 0)
	w.plan()
	w.after(lease)
	w.look(0, 1, "1")
}

// TestMachinesThatCannotBeReadAreNotAWipe starts a manager that cannot read 30 of the machines.
func TestMachinesThatCannotBeReadAreNotAWipe(t *testing.T) {
	w := newWorld(t, 40)
	w.guarded = true
	w.start()
	w.hidden = map[string]bool{}
	for i := range 38 {
		w.hidden[machineOf(i)] = true
	}
	w.warm()
	w.look(0, 0, "0")
	w.leaves(v1alpha1.UnscheduledLane, 39)
	w.look(1, 1, "0")
}

// TestOwnersAreNoWipe starts urgent departures of nearly all machines, and closes one window.
func TestOwnersAreNoWipe(t *testing.T) {
	w := newGuarded(t, 40)
	for i := range 37 {
		w.reclaim(i)
	}
	w.look(0, 0, "0")
	w.after(departurecap.Window + time.Second)
	w.leaves(v1alpha1.UnscheduledLane, 39)
	w.look(1, 0, "0")
}

// TestASettledClusterIsNotListed has a guarded Cluster without a candidate, during the warm-up and after it.
func TestASettledClusterIsNotListed(t *testing.T) {
	w := newWorld(t, 40)
	w.guarded = true
	w.start()
	for range 5 {
		if next := w.look(0, 0, "0"); next != 0 {
			t.Errorf("looks again in %s", next)
		}
		w.after(time.Minute)
	}
	if recorded := w.events(); len(recorded) > 0 {
		t.Errorf("Events %q", recorded)
	}
}

// TestARailIsLoggedWhenItBeginsAndEnds holds a wipe that is undone, and then defers machines.
func TestARailIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	w := newGuarded(t, 20)
	w.wipe(v1alpha1.UnscheduledLane, 0)
	for range 3 {
		w.plan()
	}
	for i := range w.machines {
		w.stays(i)
	}
	w.plan()
	w.leaves(v1alpha1.UnscheduledLane, 0, 1)
	for range 3 {
		w.plan()
		w.begin()
	}
	w.after(departurecap.Window)
	w.plan()
	w.begin()
	w.plan()
	want := []string{"Wipe quarantine holds departures", "Wipe quarantine no longer holds departures", "Departure cap defers departures", "Departure cap no longer defers departures"}
	for i, line := range w.warnings {
		if i >= len(want) || !strings.Contains(line, want[i]) {
			t.Errorf("line %d is %s", i, line)
		}
	}
	if len(w.warnings) != len(want) {
		t.Errorf("%d lines, want %d", len(w.warnings), len(want))
	}
}

// TestMachinesThatNeverRanRaiseNoLimit has 200 machines without a Node and 40 that run. All that run are renamed:
// deleted, and created with other names.
func TestMachinesThatNeverRanRaiseNoLimit(t *testing.T) {
	w := newGuarded(t, 40)
	for range 200 {
		w.join(false)
	}
	w.plan()
	for i := range 40 {
		w.leaves(v1alpha1.UnscheduledLane, i)
	}
	w.confirm(2)
	w.after(departurecap.Window)
	w.look(1, 3, "0")
}

// TestAMachineThatRanStaysCounted removes the status of all Machines and ScheduledMachines. Two of 40 start.
func TestAMachineThatRanStaysCounted(t *testing.T) {
	w := newGuarded(t, 40)
	for i := range 40 {
		w.change(i, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
		sm := &v1alpha1.ScheduledMachine{}
		w.must(w.Get(w.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: box(i)}, sm))
		sm.Status.NodeRef = nil
		w.must(w.Update(w.Context(), sm))
	}
	w.leaves(v1alpha1.UnscheduledLane, 0, 1, 2)
	w.plan()
	if began := w.begin(); len(began) != 2 {
		t.Errorf("%v start", began)
	}
}

// TestADryRunReportsNoQuarantine makes nearly all machines due for a manager that starts none of them.
func TestADryRunReportsNoQuarantine(t *testing.T) {
	w := newGuarded(t, 40)
	w.wipe(v1alpha1.UnscheduledLane, 3)
	gate := &actuate.Gate{DryRun: true}
	w.r.Actuate = actuate.NewGated(gate, testenv.Gated(gate.Transport, w.Client))
	for range 4 {
		w.plan()
		w.after(rails.Apart)
	}
	if reported := w.events(); len(reported) > 0 {
		t.Errorf("Events %q", reported)
	}
}
