// SPDX-License-Identifier: Apache-2.0

package lending_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// now is six minutes after the reclaim was served.
var (
	now  = time.Date(2025, time.January, 20, 10, 6, 0, 500, time.UTC)
	java = v1alpha1.ReclaimRecord{Node: "box", NodeUID: "u1", Reason: "process-match: java"}.Served(now.Add(-6 * time.Minute))
)

type change = func(*v1alpha1.ScheduledMachine)

// lent returns a machine whose owner took it back, and whose schedule a tool has turned on.
func lent(changes ...change) *v1alpha1.ScheduledMachine {
	m := &v1alpha1.ScheduledMachine{}
	m.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: java.String()}
	m.Spec.Schedule.Enabled = new(true)
	m.Spec.ResumeAfterReclaim = v1alpha1.ResumeOnEnable
	by("flux", metav1.ManagedFieldsOperationApply)(m)
	for _, c := range changes {
		c(m)
	}
	return m
}

func by(manager string, operation metav1.ManagedFieldsOperationType) change {
	return func(m *v1alpha1.ScheduledMachine) {
		m.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{}}}}`)},
			{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:schedule":{"f:enabled":{}}}}`)},
		}
	}
}

func served(ago time.Duration) change {
	return func(m *v1alpha1.ScheduledMachine) {
		m.Annotations[v1alpha1.ReclaimedAnnotation] = java.Served(now.Add(-ago)).String()
	}
}

func off(m *v1alpha1.ScheduledMachine)      { m.Spec.Schedule.Enabled = new(false) }
func onResume(m *v1alpha1.ScheduledMachine) { m.Spec.ResumeAfterReclaim = v1alpha1.ResumeOnResume }
func resumed(m *v1alpha1.ScheduledMachine)  { delete(m.Annotations, v1alpha1.ReclaimedAnnotation) }

func TestAgain(t *testing.T) {
	t.Parallel()
	update := metav1.ManagedFieldsOperationUpdate
	cases := map[string]struct {
		reason string
		m      *v1alpha1.ScheduledMachine
		want   string // empty: no mark
	}{
		"ServerSideApply": {"Desired state knows nothing of the owner.", lent(), "flux by server-side apply"},
		"ThreeWayApply":   {"Nor does a file.", lent(by("kubectl-client-side-apply", update)), "kubectl-client-side-apply"},
		"LeftOut":         {"A tool that drops the field turns the schedule on, and nobody owns what is absent.", lent(by("x", update), func(m *v1alpha1.ScheduledMachine) { m.ManagedFields, m.Spec.Schedule.Enabled = nil, nil }), "a program that is not recorded"},
		"Resume":          {"That is the way to lend it again.", lent(by(writer.Plugin, update)), ""},
		"Person":          {"They lend their machine by hand.", lent(by("kubectl-patch", update)), ""},
		"RecordTakenOff":  {"Whoever takes the record off as well has read it.", lent(resumed), ""},
		"Off":             {"It is not lent.", lent(off), ""},
		"OnResume":        {"It is not lent either.", lent(onResume), ""},
		"JustInTime":      {"Ten minutes are inside.", lent(served(10*time.Minute - time.Second)), "flux by server-side apply"},
		"LongAgo":         {"The owner may well be gone by then.", lent(served(10*time.Minute + 2*time.Second)), ""},
		"ClockSetBack":    {"A little ahead is the same moment.", lent(served(-time.Minute)), "flux by server-side apply"},
		"TimeUnknown":     {"An older manager wrote no time: nothing is claimed.", lent(func(m *v1alpha1.ScheduledMachine) { m.Annotations[v1alpha1.ReclaimedAnnotation] = "yes" }), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark, again := lending.Again(tc.m, now)
			if again != (tc.want != "") || again && mark.By != tc.want {
				t.Errorf("%s\ngot %v, %+v, want %q", tc.reason, again, mark, tc.want)
			}
		})
	}
}

// marked returns a machine some time after Note has recorded that a tool lent it again.
func marked(changes ...change) *v1alpha1.ScheduledMachine {
	m := lent()
	lending.Note(m, now)
	for _, c := range changes {
		c(m)
	}
	return m
}

func TestNote(t *testing.T) {
	t.Parallel()
	mark := map[string]string{v1alpha1.LentAgainAnnotation: `{"by":"flux by server-side apply","at":"2025-01-20T10:06:00Z"}`}
	record := map[string]string{v1alpha1.ReclaimedAnnotation: java.String()}
	nothing := map[string]string{}
	cases := map[string]struct {
		reason string
		m      *v1alpha1.ScheduledMachine
		after  time.Duration
		want   map[string]string
	}{
		"LentByTool":     {"One write takes the record off and says who did it.", lent(), 0, mark},
		"LentByPerson":   {"The record goes, and nothing comes in its place.", lent(by("kubectl-edit", metav1.ManagedFieldsOperationUpdate)), 0, nothing},
		"GivenBack":      {"As long as it is off, the record stays.", lent(off), 0, record},
		"Kept":           {"Only a person takes the record off.", lent(onResume), 0, record},
		"Told":           {"It is told for a day.", marked(), lending.ReportFor - time.Second, mark},
		"Over":           {"And not for ever.", marked(), lending.ReportFor, nothing},
		"ClockSetBack":   {"Nor because somebody set a clock.", marked(), -lending.ReportFor - time.Second, nothing},
		"TurnedOff":      {"Somebody saw it.", marked(off), 0, nothing},
		"OnResumeNow":    {"No tool can do that any more.", marked(onResume), 0, nothing},
		"ReclaimedAgain": {"The next reclaim ends it.", marked(off, func(m *v1alpha1.ScheduledMachine) { m.Annotations[v1alpha1.ReclaimedAnnotation] = java.String() }), 0, record},
		"ResumedAtOnce": {
			"What an earlier tool did is over when a person lends it.",
			marked(by(writer.Plugin, ""), func(m *v1alpha1.ScheduledMachine) { m.Annotations[v1alpha1.ReclaimedAnnotation] = java.String() }), 0, nothing,
		},
		"Unreadable": {"What nobody can read says nothing.", marked(func(m *v1alpha1.ScheduledMachine) { m.Annotations[v1alpha1.LentAgainAnnotation] = "x" }), 0, nothing},
		"Ordinary":   {"A machine without annotations has none.", &v1alpha1.ScheduledMachine{}, 0, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := now.Add(tc.after)
			lending.Note(tc.m, at)
			if diff := cmp.Diff(tc.want, tc.m.Annotations); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if _, told := lending.Of(tc.m, at); told != (tc.m.Annotations[v1alpha1.LentAgainAnnotation] != "") {
				t.Errorf("%s\ntold: %t", tc.reason, told)
			}
			again := tc.m.DeepCopy()
			if lending.Note(again, at); !cmp.Equal(again, tc.m) {
				t.Errorf("%s\nnoted twice: %v", tc.reason, again.Annotations)
			}
		})
	}
}

// API servers truncate a warning to 256 bytes.
func TestTheWarningFits(t *testing.T) {
	t.Parallel()
	if len(lending.Warning) > 256 {
		t.Errorf("%d bytes", len(lending.Warning))
	}
}
