// SPDX-License-Identifier: Apache-2.0

// Package lending detects that a tool lent a machine again soon after its owner had taken it back. With
// resumeAfterReclaim: OnEnable, any writer that sets schedule.enabled lends the machine. A GitOps tool does so
// at its next sync. The package only records and reports this in an annotation, and prevents nothing (ADR
// 0026).
package lending

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// ReportFor is how long the mark is reported: long enough for a daily check.
const ReportFor = 24 * time.Hour

// A Mark records that a tool lent a machine again. It is stored in an annotation, because the same write
// removes the record of the reclaim.
type Mark struct {
	// By is the tool, according to metadata.managedFields.
	By string `json:"by"`
	// At is when 5-Spot saw it.
	At time.Time `json:"at"`
	// Replaced reports that the record of the reclaim was lost because the object was replaced.
	Replaced bool `json:"replaced,omitempty"`
}

// Ends returns when the mark is no longer reported.
func (m Mark) Ends() time.Time { return m.At.Add(ReportFor) }

// String returns a message with the event, its source, and what to do.
func (m Mark) String() string {
	if m.Replaced {
		return "According to metadata.managedFields, " + m.By + " replaced this ScheduledMachine. That removed the record that its owner has the machine, and turned the schedule on. " +
			"To return the machine: kubectl 5spot give-back. To keep the record: use kubectl apply, or set spec.resumeAfterReclaim: OnResume; see docs/gitops.md"
	}
	return "According to metadata.managedFields, " + m.By + " turned the schedule on within 10 minutes after the machine was given back to its owner. " +
		"Take schedule.enabled out of what it applies, or set spec.resumeAfterReclaim: OnResume; see docs/gitops.md"
}

// Warning is the admission warning for a write that lends the machine again.
const Warning = "spec.schedule.enabled: the owner has just taken the machine back, and this lends it again: " +
	"leave the field out of what you apply, or set spec.resumeAfterReclaim: OnResume; see docs/gitops.md"

// Again returns the mark for a machine that is lent again at now. It returns false if the machine is not lent,
// if a person lent it, or if the reclaim was served more than RapidWindow ago. A person is recognized by the
// field manager. A writer that also removes the record of the reclaim has resumed the machine.
func Again(sm *v1alpha1.ScheduledMachine, now time.Time) (Mark, bool) {
	record, reclaimed := sm.ServedReclaim()
	if !reclaimed || !sm.ScheduleEnabled() {
		return Mark{}, false
	}
	served, err := time.Parse(time.RFC3339, record.ServedAt)
	if err != nil || now.Sub(served).Abs() > lifecycle.RapidWindow {
		return Mark{}, false
	}
	by := writer.Last(sm.ManagedFields, writer.Enabled)
	return Mark{By: by.String(), At: now.UTC().Truncate(time.Second)}, !by.ByHand()
}

// NoteReplaced marks a machine that is lent again because its object was replaced.
func NoteReplaced(sm *v1alpha1.ScheduledMachine, now time.Time) {
	mark := Mark{By: writer.Last(sm.ManagedFields, writer.Enabled).String(), At: now.UTC().Truncate(time.Second), Replaced: true}
	if text, err := json.Marshal(mark); err == nil {
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.LentAgainAnnotation, string(text))
	}
}

// Of returns the mark of a machine. It returns false without a mark, after ReportFor, while the schedule is off, and
// if only a resume can lend the machine again.
func Of(sm *v1alpha1.ScheduledMachine, now time.Time) (Mark, bool) {
	mark := Mark{}
	if err := json.Unmarshal([]byte(sm.Annotations[v1alpha1.LentAgainAnnotation]), &mark); err != nil {
		return Mark{}, false
	}
	mark.By = clip.Line(mark.By)
	return mark, sm.ScheduleEnabled() && sm.Spec.ResumeAfterReclaim != v1alpha1.ResumeOnResume && now.Sub(mark.At).Abs() < ReportFor
}

// Note updates the annotations of a machine. If the schedule was turned on, it removes the record of the
// reclaim, and records a Mark if a tool turned it on.
func Note(sm *v1alpha1.ScheduledMachine, now time.Time) {
	if _, reclaimed := sm.ServedReclaim(); reclaimed && sm.ScheduleEnabled() {
		mark, again := Again(sm, now)
		delete(sm.Annotations, v1alpha1.ReclaimedAnnotation)
		delete(sm.Annotations, v1alpha1.LentAgainAnnotation)
		if text, err := json.Marshal(mark); again && err == nil {
			sm.Annotations[v1alpha1.LentAgainAnnotation] = string(text)
		}
	}
	if _, told := Of(sm, now); !told {
		delete(sm.Annotations, v1alpha1.LentAgainAnnotation)
	}
}
