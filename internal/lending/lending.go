// SPDX-License-Identifier: Apache-2.0

// Package lending answers one question: was a machine lent again by a tool, soon after its
// owner had taken it back? With resumeAfterReclaim: OnEnable whatever sets schedule.enabled
// lends it, and a tool that applies desired state does so at its next turn. It only says so
// (ADR 0028); it holds nothing up.
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

// Told is how long it is told: until somebody who looks once a day has seen it.
const Told = 24 * time.Hour

// A Mark is what is remembered of a machine that a tool lent again. It lives in an
// annotation, because it is written in the one write that takes the record of the reclaim
// off.
type Mark struct {
	// By is the tool, as far as it is recorded.
	By string `json:"by"`
	// At is when that was seen.
	At time.Time `json:"at"`
	// Replaced says that the record of the reclaim was lost when the object was replaced.
	Replaced bool `json:"replaced,omitempty"`
}

// Ends is when the mark is not told any more.
func (m Mark) Ends() time.Time { return m.At.Add(Told) }

// String says what happened, how that is known, and the way out.
func (m Mark) String() string {
	if m.Replaced {
		return "According to metadata.managedFields, " + m.By + " replaced this ScheduledMachine. That removed the record that its owner has the machine, and turned the schedule on. " +
			"To return the machine: kubectl 5spot give-back. To keep the record: use kubectl apply, or set spec.resumeAfterReclaim: OnResume; see docs/gitops.md"
	}
	return "According to metadata.managedFields, " + m.By + " turned the schedule on within 10 minutes after the machine was given back to its owner. " +
		"Take schedule.enabled out of what it applies, or set spec.resumeAfterReclaim: OnResume; see docs/gitops.md"
}

// Warning says so to whoever does it.
const Warning = "spec.schedule.enabled: the owner has just taken the machine back, and this lends it again: " +
	"leave the field out of what you apply, or set spec.resumeAfterReclaim: OnResume; see docs/gitops.md"

// Again returns who lends the machine again at now, and false if nobody does, if a person
// does, or if its owner has had it for long. What a person wrote is known by the name of
// the program. Whoever takes the record of the reclaim off as well has resumed it.
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

// Of returns the mark of a machine as long as it is told, and false if there is nothing
// to tell: it is off, so that its owner has it, or nothing but a person can lend it again.
func Of(sm *v1alpha1.ScheduledMachine, now time.Time) (Mark, bool) {
	mark := Mark{}
	if err := json.Unmarshal([]byte(sm.Annotations[v1alpha1.LentAgainAnnotation]), &mark); err != nil {
		return Mark{}, false
	}
	mark.By = clip.Line(mark.By)
	return mark, sm.ScheduleEnabled() && sm.Spec.ResumeAfterReclaim != v1alpha1.ResumeOnResume && now.Sub(mark.At).Abs() < Told
}

// Note brings the annotations of a machine up to date: where the schedule has been turned
// on, whoever did that has read why it was off, and the record of the reclaim goes. If a
// tool did, that is remembered in its place.
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
