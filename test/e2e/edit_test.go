// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKindEditedWhileActiveOrphansNothing(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "editkind")
	l.installKind("OtherMachine", "othermachines")
	sm := l.running("box", nil)
	before := l.family(sm)
	l.edit(sm, func() { sm.Spec.InfrastructureSpec.Kind = "OtherMachine" })
	l.waitCondition(sm, v1alpha1.ReadyCondition, metav1.ConditionTrue, "MachineRunning", "spec.infrastructureSpec apply at the next window")
	holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, before.objects()...) })
	if sm.Status.InfrastructureRef.Kind != "PlaneMachine" {
		t.Errorf("the status must refer to what exists: %+v", sm.Status.InfrastructureRef)
	}
	l.closeWindow(sm)
	l.waitPhase(sm, inactive, metav1.ConditionTrue)
	l.wantNothing(sm)
	l.openWindow(sm)
	l.waitFor(sm, func() error {
		if sm.Status.InfrastructureRef == nil || sm.Status.InfrastructureRef.Kind != "OtherMachine" {
			return errors.New("the next window must have the edited kind")
		}
		return nil
	})
	l.delete(sm)
	l.waitGone(sm)
	l.nothingLeft(sm)
	l.wantNone("othermachines")
}

// wantNone checks that a kind has no objects in the lab's namespace.
func (l *lab) wantNone(plural string) {
	l.t.Helper()
	out, err := shared.Management.Kubectl(timeout(l.t, patience), "get", plural, "-n", l.Key.Namespace, "-o", "name")
	l.must(err)
	if out != "" {
		l.t.Errorf("nothing may be left: %s", out)
	}
}
