// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects that were stored before a rule existed are reported and not changed. These tests remove the webhook for a
// moment, so they are not parallel.

func TestUnreadableScheduleIsUnknownAndMovesNothing(t *testing.T) {
	l := newLab(t, "stored")
	running := l.running("running", nil)
	goes := l.running("goes", nil)
	owned := l.running("owned", nil)
	before := l.family(running)
	fresh := l.scheduledMachine("fresh", planeMachine)
	l.withoutWebhooks(func() {
		for _, sm := range []*v1alpha1.ScheduledMachine{running, goes, owned} {
			l.edit(sm, func() { sm.Spec.Schedule.DaysOfWeek = []string{"mon", "someday"} })
		}
		fresh.Spec.Schedule.Timezone = "Europe/Atlantis"
		l.create(fresh)
	})
	l.waitCondition(running, v1alpha1.ScheduledCondition, metav1.ConditionUnknown, "ScheduleUnreadable", "spec.schedule.daysOfWeek[1]", "someday")
	l.waitCondition(running, v1alpha1.ReadyCondition, metav1.ConditionFalse, "ScheduleUnreadable")
	l.waitCondition(fresh, v1alpha1.ScheduledCondition, metav1.ConditionUnknown, "TimezoneUnavailable", "spec.schedule.timezone", "Europe/Atlantis")
	l.waitPhase(fresh, pending, metav1.ConditionFalse)
	l.wantNothing(fresh)
	holds(t, 2*shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	if running.Status.NextActivation != nil || running.Status.NextCleanup != nil {
		t.Errorf("nobody knows when an unreadable schedule flips: %+v", running.Status)
	}

	l.delete(goes)
	l.waitGone(goes)
	l.nothingLeft(goes)

	l.askBack(l.node(owned), "java")
	l.wantReclaimed(owned, "java")

	// An invalid stored field does not prevent other edits, and can be corrected.
	l.edit(running, func() { running.Spec.Priority = new(int32(7)) })
	l.edit(running, func() { running.Spec.Schedule.DaysOfWeek = []string{"mon-sun"} })
	l.waitPhase(running, active, metav1.ConditionTrue)
	if err := unchanged(timeout(t, patience), before.objects()...); err != nil {
		t.Errorf("the Machine must have lived through it: %v", err)
	}
	l.killSwitch(fresh, true)
	l.waitPhase(fresh, terminated, metav1.ConditionTrue)
}
