// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestWhyReportsASharedHost explains two ScheduledMachines that name the same host.
func TestWhyReportsASharedHost(t *testing.T) {
	t.Parallel()
	const says = "the same host is named by another"
	cases := map[string]struct {
		reason, why string
		change      func(*v1alpha1.ScheduledMachine)
		want        []string
	}{
		"Second": {
			"The machine that waits names the other.", v1alpha1.ClaimedByAnotherReason,
			func(m *v1alpha1.ScheduledMachine) { m.Status.MachineRef, m.Status.Phase = nil, v1alpha1.PhasePending },
			[]string{"Blocked: it waits for another ScheduledMachine that names the same host\n", "Because:   " + says},
		},
		"SecondThatRuns": {"It goes on.", v1alpha1.ClaimedByAnotherReason, func(*v1alpha1.ScheduledMachine) {}, []string{"Running: ", "Note:      " + says}},
		"First":          {"The machine that keeps the host names the other.", v1alpha1.ClaimedFirstReason, func(*v1alpha1.ScheduledMachine) {}, []string{"Running: ", "Note:      " + says}},
		"PassedOn": {
			"The owner asked for the other.", "",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.Schedule.Enabled, m.Status.MachineRef, m.Status.NodeRef = new(false), nil, nil
				m.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: v1alpha1.ReclaimRecord{Reason: "process-match: java", PropagatedFrom: "desk"}.String()}
			},
			[]string{"Returned: ", "Because:   its owner asked for the same host through desk: process-match: java\n"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine("office", func(m *v1alpha1.ScheduledMachine) {
				m.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: "office-machine"}
				if tc.why != "" {
					m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.HostClaimedCondition, metav1.ConditionTrue, tc.why, says))
				}
				tc.change(m)
			})
			got := run("", "why", "office", cluster(t, map[string]any{path("office"): m})).Out
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s\n%q is not in:\n%s", tc.reason, want, got)
				}
			}
		})
	}
}
