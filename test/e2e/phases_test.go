// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

const (
	pending    = v1alpha1.PhasePending
	active     = v1alpha1.PhaseActive
	leaving    = v1alpha1.PhaseShuttingDown
	inactive   = v1alpha1.PhaseInactive
	disabled   = v1alpha1.PhaseDisabled
	terminated = v1alpha1.PhaseTerminated
	emergency  = v1alpha1.PhaseEmergencyRemove
	failed     = v1alpha1.PhaseError
)

func TestPhaseFollowsTheWindow(t *testing.T) {
	t.Parallel()
	specs.PhaseFollowsTheWindow(newLab(t, "window").specs())
}

func TestReopenedWindowWaitsForTheDepartureUnderWay(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "reopen")
	sm := l.running("box", nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{DeletionSeconds: 4}})
	h := l.follow(sm)
	first := l.family(sm)
	l.closeWindow(sm)
	l.waitPhase(sm, leaving, "")
	l.openWindow(sm)
	l.waitFor(sm, func() error {
		if sm.Status.InSchedule {
			return nil
		}
		return errStillHolds
	})
	if sm.Status.Phase != leaving {
		t.Errorf("the departure must be finished first, got phase %s", sm.Status.Phase)
	}
	l.waitPhase(sm, active, metav1.ConditionTrue)
	if f := l.family(sm); f.machine.UID == first.machine.UID || f.infra.UID == first.infra.UID || f.bootstrap.UID == first.bootstrap.UID {
		t.Error("every child must be a new one after the departure")
	}
	h.want(l, active, leaving, active)
}

func TestOutsideTheWindowNothingIsMade(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "outside")
	sm := l.started("box", outside)
	h := l.follow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	h.want(l, pending, inactive)
	for _, w := range l.writes(0) {
		if w.Verb == "create" && w.ObjectRef.Resource != "events" {
			t.Errorf("nothing may be made outside the window: %s", describe(w))
		}
	}
}

func TestDisabledScheduleMovesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "disabled")
	sm := l.running("box", nil)
	h := l.follow(sm)
	before := l.family(sm)
	l.enable(sm, false)
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	l.waitCondition(sm, v1alpha1.ScheduledCondition, metav1.ConditionFalse, "ScheduleDisabled")
	l.edit(sm, func() { sm.Spec.Schedule = closed(); sm.Spec.Schedule.Enabled = new(false) })
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	holds(t, 2*time.Second, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	if sm.Status.NodeRef == nil || sm.Status.MachineRef == nil {
		t.Errorf("the status must go on to tell of the Machine that stays: %+v", sm.Status)
	}
	if sm.Status.NextActivation != nil || sm.Status.NextCleanup != nil || sm.Status.InSchedule {
		t.Errorf("a disabled schedule has no next instants: %+v", sm.Status)
	}
	l.openWindow(sm)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	if l.family(sm).machine.UID != before.machine.UID {
		t.Error("the Machine that stayed must be taken up again")
	}
	h.want(l, active, disabled, pending, active)
}

func TestDisabledScheduleStartsNothing(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "never")
	sm := l.started("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) })
	h := l.follow(sm)
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	l.wantNothing(sm)
	l.enable(sm, true)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	h.want(l, disabled, pending, active)
}

func TestKillSwitchTakesTheMachineOutWithoutDrain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "kill")
	l.wantNoEviction(specs.KillSwitchTakesTheMachineOutWithoutDrain(l.specs()))
}

func TestKillSwitchInTheMiddleOfADrain(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "killdrain")
	sm := l.running("box", nil)
	h := l.follow(sm)
	pod, _ := l.runPinned(sm, "killdrain-work")
	infra := l.family(sm).infra
	l.closeWindow(sm)
	l.waitCondition(sm, v1alpha1.MachineReadyCondition, metav1.ConditionFalse, "DrainingNode", pod.Name)
	l.killSwitch(sm, true)
	// Cluster API may reconcile the Machine only 20 s later; the owner's request must not wait for that.
	begin := time.Now()
	l.waitGone(infra)
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("the infrastructure must go at once, also during a drain; it took %v", took)
	}
	l.waitPhase(sm, terminated, metav1.ConditionTrue)
	l.wantNothing(sm)
	h.want(l, active, leaving, terminated)
}

func TestKillSwitchKeepsAnIdleMachineAway(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "killidle")
	sm := l.started("box", outside)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	h := l.follow(sm)
	l.killSwitch(sm, true)
	l.waitPhase(sm, terminated, metav1.ConditionTrue)
	l.openWindow(sm)
	l.waitPhase(sm, terminated, metav1.ConditionTrue)
	l.wantNothing(sm)
	if !sm.Status.InSchedule {
		t.Error("inSchedule must follow the clock also while the phase stands still")
	}
	l.enable(sm, false)
	l.waitPhase(sm, terminated, metav1.ConditionTrue)
	l.edit(sm, func() { sm.Spec.KillSwitch = false; sm.Spec.Schedule = closed() })
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	h.want(l, inactive, terminated, pending, inactive)
}

// wantRunning checks the whole status of a running machine.
func (l *lab) wantRunning(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.specs().WantRunning(sm)
}

// wantNothing checks that no object exists, and that the status shows it.
func (l *lab) wantNothing(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.specs().WantCleared(sm)
	l.nothingLeft(sm)
}

// unchanged returns an error for an object that was replaced or is being deleted.
func unchanged(ctx context.Context, objs ...client.Object) error {
	for _, obj := range objs {
		now, ok := obj.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", obj)
		}
		if err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil {
			return err
		}
		if now.GetUID() != obj.GetUID() || !now.GetDeletionTimestamp().IsZero() {
			return fmt.Errorf("%T %s is another or is being deleted", obj, obj.GetName())
		}
	}
	return nil
}
