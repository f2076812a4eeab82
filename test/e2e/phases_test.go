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

func TestDisabledScheduleMovesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "disabled")
	sm := l.running("box", nil)
	h := l.follow(sm)
	before := l.family(sm)
	l.disable(sm)
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

func TestKillSwitchTakesTheMachineOutWithoutDrain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "kill")
	l.wantNoEviction(specs.KillSwitchTakesTheMachineOutWithoutDrain(l.specs()))
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
