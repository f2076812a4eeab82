// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Fields whose writers are of interest.
var (
	specFields      = fieldpath.MakePathOrDie("spec")
	enabledField    = fieldpath.MakePathOrDie("spec", "schedule", "enabled")
	killSwitchField = fieldpath.MakePathOrDie("spec", "killSwitch")
	requestField    = fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.EmergencyReclaimAnnotation)
)

// writer is a program that wrote a setting, such as kubectl-patch, and when it last
// wrote to the object.
type writer struct {
	Manager string `json:"manager"`
	// Operation is Apply for server-side apply, else Update.
	Operation metav1.ManagedFieldsOperationType `json:"operation,omitempty"`
	At        *metav1.Time                      `json:"at,omitempty"`
}

// lastWriter returns who set a field, or anything below it. Of several, all of whom
// set it to what it is, it is the one who wrote last; who set it to something else
// before is not recorded.
func lastWriter(m *v1alpha1.ScheduledMachine, field fieldpath.Path) *writer {
	var last *writer
	for _, f := range m.ManagedFields {
		if f.Subresource == "" && owns(f, field) && (last == nil || last.At.Before(f.Time)) {
			last = &writer{Manager: f.Manager, Operation: f.Operation, At: f.Time}
		}
	}
	return last
}

// owns reports whether an entry has the field, or something below it. One that cannot
// be read has nothing.
func owns(f metav1.ManagedFieldsEntry, field fieldpath.Path) bool {
	if f.FieldsV1 == nil {
		return false
	}
	fields := &fieldpath.Set{}
	if err := fields.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())); err != nil {
		return false
	}
	if fields.Has(field) {
		return true
	}
	for _, element := range field {
		fields = fields.WithPrefix(element)
	}
	return !fields.Empty()
}

// at is when the writer wrote last, zero if nobody knows.
func (w *writer) at() time.Time {
	if w == nil || w.At == nil {
		return time.Time{}
	}
	return w.At.Time
}

func (w *writer) text(now time.Time) string {
	how := w.Manager
	if w.Operation == metav1.ManagedFieldsOperationApply {
		how += " by server-side apply"
	}
	if w.At == nil {
		return how
	}
	return fmt.Sprintf("%s, which wrote last %s ago (%s)", how, duration.HumanDuration(now.Sub(w.At.Time)), w.At.UTC().Format(time.RFC3339))
}
