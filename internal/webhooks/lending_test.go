// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/webhooks"
)

var today = time.Date(2025, time.January, 20, 10, 0, 0, 0, time.UTC)

// TestLendingAgainWarns checks that only the write which lends a machine again soon after its reclaim gets the
// warning.
func TestLendingAgainWarns(t *testing.T) {
	state := func(enabled bool, manager string, more ...func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
		return machine(func(m *v1alpha1.ScheduledMachine) {
			m.Spec.Schedule.Enabled = new(enabled)
			m.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: v1alpha1.ReclaimRecord{Reason: "java"}.Served(today.Add(-time.Minute)).String()}
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:schedule":{"f:enabled":{}}}}`)}}
			for _, change := range more {
				change(m)
			}
		})
	}
	onResume := func(m *v1alpha1.ScheduledMachine) { m.Spec.ResumeAfterReclaim = v1alpha1.ResumeOnResume }
	hook := &webhooks.Lending{Clock: clocktesting.NewFakePassiveClock(today)}
	cases := map[string]struct {
		reason   string
		old, new *v1alpha1.ScheduledMachine
		warned   bool
	}{
		"Tool":       {"It applies what it finds in a file.", state(false, v1alpha1.FieldManager), state(true, "argocd-controller"), true},
		"Person":     {"They lend it on purpose.", state(false, v1alpha1.FieldManager), state(true, "kubectl-patch"), false},
		"StillOff":   {"An edit of something else lends nothing.", state(false, v1alpha1.FieldManager), state(false, "argocd-controller"), false},
		"OnBefore":   {"Only the writer that turned it on is warned.", state(true, "argocd-controller"), state(true, "argocd-controller"), false},
		"OnResume":   {"It lends nothing.", state(false, v1alpha1.FieldManager, onResume), state(true, "argocd-controller", onResume), false},
		"NotAnyMore": {"A change back to OnEnable lends it while the record exists.", state(true, "argocd-controller", onResume), state(true, "argocd-controller"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			warnings, err := hook.ValidateUpdate(t.Context(), tc.old, tc.new)
			if err != nil || slices.Contains(warnings, lending.Warning) != tc.warned {
				t.Errorf("%s\ngot %q, %v, want a warning: %t", tc.reason, warnings, err, tc.warned)
			}
		})
	}
}
