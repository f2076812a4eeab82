// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// TestAKillSwitchUsesNoSharedRateLimit records the writes of the client that all departures share.
func TestAKillSwitchUsesNoSharedRateLimit(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.r.Unlimited = actuate.New(w.Client)
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.KillSwitch = true
		sm.OwnerReferences = nil // It is added again before the removal.
	})
	w.Writes = nil
	w.settle()
	w.want(v1alpha1.PhaseTerminated, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.TerminatingReason)
	if m, ok := w.machine(); ok && m.DeletionTimestamp.IsZero() {
		t.Error("the Machine stays")
	}
	if i, ok := w.infra(); ok && i.GetDeletionTimestamp().IsZero() {
		t.Error("the infrastructure stays")
	}
	if len(w.Writes) != 0 {
		t.Errorf("writes with the shared rate limit: %v", w.Writes)
	}
}
