// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// TestTwoOfOneHost has a copied manifest for the same host. Only the first acts, and an owner's request applies to
// both. The second takes over once the first is deleted and a person resumes it.
func TestTwoOfOneHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, "twins")
	host := infrav1.PlaneMachineSpec{NodeName: "twins-desk"}
	first := l.running("first", nil, host)
	second := l.started("second", nil, host)
	l.waitPhase(second, v1alpha1.PhasePending, metav1.ConditionFalse)
	l.waitCondition(second, v1alpha1.HostClaimedCondition, metav1.ConditionTrue, v1alpha1.ClaimedByAnotherReason, "nodeName twins-desk", first.Name)
	l.waitCondition(first, v1alpha1.HostClaimedCondition, metav1.ConditionTrue, v1alpha1.ClaimedFirstReason, "nodeName twins-desk", second.Name)
	nothing := func(ctx context.Context) error {
		left, err := l.left(ctx, second)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("made on a host of another: %v", left)
		}
		return err
	}
	holds(t, shortly, nothing)

	l.askBack(l.node(first), "java")
	l.wantReclaimed(first, "java")
	l.waitFor(second, func() error {
		if record, ok := second.ServedReclaim(); !ok || second.ScheduleEnabled() || record.PropagatedFrom != first.Name {
			return errors.New("the second knows nothing of the owner's request")
		}
		return nil
	})
	l.delete(first)
	l.waitGone(first)
	holds(t, shortly, nothing)
	l.edit(second, func() { second.Spec.Schedule.Enabled = new(true) })
	l.waitPhase(second, v1alpha1.PhaseActive, metav1.ConditionTrue)
}
