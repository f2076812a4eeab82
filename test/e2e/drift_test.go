// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

func TestVanishedChildIsMadeAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "vanish")
	cases := map[string]struct {
		vanishes func(family) client.Object
		// replaced reports that the Machine must be a new one: Cluster API does not repair a Machine whose
		// infrastructure was deleted.
		replaced bool
	}{
		"Machine":        {func(f family) client.Object { return f.machine }, true},
		"Infrastructure": {func(f family) client.Object { return f.infra }, true},
		"Bootstrap":      {func(f family) client.Object { return f.bootstrap }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := *l
			l.t = t
			sm := l.running(slug(name), nil)
			before := l.family(sm)
			victim := tc.vanishes(l.family(sm))
			uid := victim.GetUID()
			l.delete(victim)
			l.waitFor(victim, func() error {
				if victim.GetUID() == uid || !victim.GetDeletionTimestamp().IsZero() {
					return errors.New("it has not been made again")
				}
				return nil
			})
			l.waitFor(sm, func() error {
				if err := phaseIs(sm, active); err != nil {
					return err
				}
				if c := condition(sm, v1alpha1.ReadyCondition); c.Status != metav1.ConditionTrue {
					return fmt.Errorf("it is not ready: %s", c.Message)
				}
				return nil
			})
			if after := l.family(sm); (after.machine.UID != before.machine.UID) != tc.replaced {
				t.Errorf("Machine replaced: %v, want %v", !tc.replaced, tc.replaced)
			}
			if made := l.created(0, "machines", before.machine.Name); tc.replaced && made != 2 || !tc.replaced && made != 1 {
				t.Errorf("the Machine must be replaced once at most, it was made %d times", made)
			}
		})
	}
}

func TestMachineDeletedByHandComesBackWhenItIsReallyGone(t *testing.T) {
	t.Parallel()
	l := newLab(t, "byhand")
	sm := l.running("box", nil, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{DeletionSeconds: 4}})
	h := l.follow(sm)
	before := l.family(sm)
	l.delete(before.machine)
	l.waitPhase(sm, leaving, metav1.ConditionFalse)
	l.waitFor(sm, func() error {
		if sm.Status.Phase == leaving {
			return errors.New("it is still leaving")
		}
		return nil
	})
	l.waitPhase(sm, active, metav1.ConditionTrue)
	after := l.family(sm)
	if after.machine.UID == before.machine.UID || after.infra.UID == before.infra.UID || after.bootstrap.UID == before.bootstrap.UID {
		t.Error("all children must be new ones")
	}
	h.want(l, active, leaving, active)
}

func TestMachineOfADisabledScheduleIsNotReplaced(t *testing.T) {
	long(t)
	t.Parallel()
	l := newLab(t, "offdrift")
	sm := l.running("box", nil)
	l.disable(sm)
	l.waitPhase(sm, disabled, "")
	machine := l.family(sm).machine
	l.delete(machine)
	l.waitGone(machine)
	l.waitFor(sm, func() error {
		if sm.Status.MachineRef != nil || sm.Status.NodeRef != nil || sm.Status.InfrastructureRef != nil {
			return fmt.Errorf("its status refers to what is gone: %+v", sm.Status)
		}
		return nil
	})
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	l.nothingLeft(sm)
}
