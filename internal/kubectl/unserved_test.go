// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// deletedAgo is a ScheduledMachine that was deleted that long ago, as a manager has observed.
func deletedAgo(ago time.Duration) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) { m.DeletionTimestamp = in(-ago) }
}

// wroteAgo adds a write of these fields, that long ago.
func wroteAgo(fields string, ago time.Duration) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl", Time: in(-ago), FieldsV1: metav1.NewFieldsV1(fields)})
	}
}

func unseenChange(m *v1alpha1.ScheduledMachine) { m.Generation++ }

func inPhase(p v1alpha1.Phase) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) { m.Status.Phase = p }
}

// TestReportsAnUnservedMachine covers every sign that no manager serves a machine, and similar states without such a
// sign.
func TestReportsAnUnservedMachine(t *testing.T) {
	t.Parallel()
	const (
		request = `{"f:metadata":{"f:annotations":{"f:5spot.finos.org/emergency-reclaim":{}}}}`
		spec    = `{"f:spec":{"f:killSwitch":{}}}`
	)
	long := wroteAgo(request, 5*time.Minute)
	seen := java
	seen.SeenAt = "2025-01-15T14:00:01Z"
	cases := map[string]struct {
		reason string
		object *v1alpha1.ScheduledMachine
		since  string // empty: no doubt is expected
	}{
		"OwnerOfWhatIsDeleted":  {"Its owner is not told that it is given back.", machine("office", deletedAgo(time.Hour), leaving, withRequest(java), long), "5m"},
		"OwnerAmongMany":        {"The phase waits for other owners.", machine("office", withRequest(seen), wroteAgo(request, 80*time.Second)), ""},
		"OwnerAmongManyForLong": {"A report waits a minute at most.", machine("office", withRequest(seen), wroteAgo(request, 100*time.Second)), "100s"},
		"OwnerOfWhatIsHeldAndDeleted": {
			"A request waits at no rail.", machine("office", deletedAgo(time.Hour), kept(v1alpha1.WipeQuarantineReason, time.Hour), withRequest(java), long), "5m",
		},
		"OwnerOfWhatIsDeletedIsServed": {"That is its phase.", machine("office", deletedAgo(time.Hour), withRequest(java), long, taking), ""},
		"OwnerOfWhatIsDeletedIsRefused": {
			"A step that failed was tried.", machine("office", deletedAgo(time.Hour), withRequest(java), long, inPhase(v1alpha1.PhaseError)), "",
		},
		"KilledAndDeleted": {"No manager has observed the kill switch.", machine("office", deletedAgo(time.Hour), killed, wroteAgo(spec, 5*time.Minute), unseenChange), "5m"},
		"OwnerOfWhatIsKilled": {
			"The kill switch comes first, and has its own phase.", machine("office", killed, withRequest(java), long, inPhase(v1alpha1.PhaseTerminated)), "",
		},
		"OwnerOfWhatIsKilledAndActive": {
			"The phase shows that no manager has observed either.", machine("office", killed, withRequest(java), long, inPhase(v1alpha1.PhaseActive)), "5m",
		},
		"JustDeleted": {
			"The spec is old, and its deletion is not.", machine("office", deletedAgo(5*time.Second), wroteAgo(spec, time.Hour), unseenChange), "",
		},
		"DeletedUnseen": {"It counts from the deletion.", machine("office", deletedAgo(5*time.Minute), wroteAgo(spec, time.Hour), unseenChange), "5m"},
		"Capped":        {"It may wait for any time.", machine("office", kept(departurecap.BlastRadiusCap, time.Hour)), ""},
		"CappedUnannounced": {
			"It may wait for any time.", machine("office", kept(departurecap.BlastRadiusCap, time.Hour), unannounced), "",
		},
		"Departs": {"A departure may take its time.", machine("office", deletedAgo(time.Hour), leaving), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := cluster(t, map[string]any{path("office"): tc.object})
			want := "no controller has acted on it for " + tc.since + ": "
			for _, command := range [][]string{{"why", "office"}, {"status", "office"}, {"status", "office", "-o", "json"}} {
				got := run("", append(command, config)...).Out
				if doubted := strings.Contains(got, "no controller has acted"); doubted != (tc.since != "") || doubted && !strings.Contains(got, want) {
					t.Errorf("%s\n%v: want %q in\n%s", tc.reason, command, tc.since, got)
				}
			}
		})
	}
}
