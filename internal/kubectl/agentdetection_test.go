// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestWhyReportsWhetherTheAgentDetects checks the line that an owner reads before relying on the detection of a program.
func TestWhyReportsWhetherTheAgentDetects(t *testing.T) {
	t.Parallel()
	const command = "this still works: kubectl 5spot -n farm give-back office\n"
	cases := map[string]struct {
		reason string
		status metav1.ConditionStatus
		why    string
		want   []string
		change func(*v1alpha1.ScheduledMachine)
	}{
		"Heard":     {"It can be relied on.", metav1.ConditionTrue, v1alpha1.WatchingReason, []string{"notices when one of the agreed programs starts: java, idea\n"}, nil},
		"NotHeld":   {"It notices, but gives back the CPU later.", metav1.ConditionTrue, v1alpha1.HoldUnavailableReason, []string{"notices when one of the agreed programs starts: java, idea\n", "           the agent says why\n"}, nil},
		"Unheard":   {"What helps, and why.", metav1.ConditionFalse, v1alpha1.AgentNotRunningReason, []string{"does not notice", command, "           the agent says why\n"}, nil},
		"Unknown":   {"Unknown is reported as unknown.", metav1.ConditionUnknown, v1alpha1.ConfigurationUnconfirmedReason, []string{"it is unknown whether", command}, nil},
		"NoCluster": {"The whole cluster cannot be seen, which has its own note.", metav1.ConditionUnknown, v1alpha1.NotConnectedReason, nil, nil},
		"NotAgreed": {"Nothing was agreed.", "", "", nil, nil},
		"Leaves": {"The agent is removed before the drain.", metav1.ConditionTrue, v1alpha1.WatchingReason, []string{"does not notice", command}, func(m *v1alpha1.ScheduledMachine) {
			m.Status.MachineRef = &v1alpha1.ChildReference{Name: "office-machine", DeletionTimestamp: &metav1.Time{Time: time.Unix(0, 0)}}
		}},
		"Deleted": {"The agent stays while a rail keeps the Machine.", metav1.ConditionTrue, v1alpha1.WatchingReason, []string{"notices when one of the agreed programs starts"}, deletedAgo(time.Hour)},
		"Returns": {"It has noticed.", metav1.ConditionTrue, v1alpha1.WatchingReason, nil, func(m *v1alpha1.ScheduledMachine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, v1alpha1.PersonsRequest("", "", time.Unix(0, 0)).String())
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine("office", func(m *v1alpha1.ScheduledMachine) {
				m.Spec.KillIfCommands = []string{"java", "idea"}
				if tc.status != "" {
					m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.OwnerProtectedCondition, tc.status, tc.why, "the agent says why"))
				}
				if tc.change != nil {
					tc.change(m)
				}
			})
			got := run("", "why", "office", cluster(t, map[string]any{path("office"): m})).Out
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s\n%q is not in:\n%s", tc.reason, want, got)
				}
			}
			if len(tc.want) == 0 && strings.Contains(got, "notice") {
				t.Errorf("%s\n%s", tc.reason, got)
			}
		})
	}
}
