// SPDX-License-Identifier: Apache-2.0

// Package writer returns which program wrote a field of an object, according to metadata.managedFields. It
// distinguishes programs that a person uses interactively from all others.
package writer

import (
	"bytes"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Enabled is the path of the field that lends a machine.
var Enabled = fieldpath.MakePathOrDie("spec", "schedule", "enabled")

// Plugin is the field manager of kubectl-5spot.
const Plugin = "kubectl-5spot"

// A Writer is a program that wrote a field, such as kubectl-patch, and the time of its latest write to the
// object. Its JSON form is an API.
type Writer struct {
	Manager string `json:"manager"`
	// Operation is Apply for server-side apply, otherwise Update.
	Operation metav1.ManagedFieldsOperationType `json:"operation,omitempty"`
	At        *metav1.Time                      `json:"at,omitempty"`
}

// Last returns the writer of a field or of a field below it, nil if none is recorded. If several own it with
// the same value, it returns the latest. Writers of earlier values are not recorded.
func Last(entries []metav1.ManagedFieldsEntry, field fieldpath.Path) *Writer {
	return LastFunc(entries, func(fields *fieldpath.Set) bool {
		if fields.Has(field) {
			return true
		}
		for _, element := range field {
			fields = fields.WithPrefix(element)
		}
		return !fields.Empty()
	})
}

// LastFunc is Last for entries whose fields satisfy owns. It skips entries that cannot be parsed.
func LastFunc(entries []metav1.ManagedFieldsEntry, owns func(*fieldpath.Set) bool) *Writer {
	var last *Writer
	for _, f := range entries {
		if f.Subresource != "" || f.FieldsV1 == nil || last != nil && !last.At.Before(f.Time) {
			continue
		}
		fields := &fieldpath.Set{}
		if err := fields.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())); err == nil && owns(fields) {
			last = &Writer{Manager: f.Manager, Operation: f.Operation, At: f.Time}
		}
	}
	return last
}

// Time returns when the writer last wrote, zero if unknown.
func (w *Writer) Time() time.Time {
	if w == nil || w.At == nil {
		return time.Time{}
	}
	return w.At.Time
}

// String returns the name of the program and whether it used server-side apply.
func (w *Writer) String() string {
	switch {
	case w == nil || w.Manager == "":
		return "a program that is not recorded"
	case w.Operation == metav1.ManagedFieldsOperationApply:
		return w.Manager + " by server-side apply"
	default:
		return w.Manager
	}
}

// byHand are the programs with which a person changes single fields. "kubectl apply" and "kubectl replace" are
// not among them: they write the content of a file.
var byHand = []string{Plugin, "kubectl-edit", "kubectl-patch"}

// ByHand reports whether a person wrote the field, according to the field manager. A client can choose any
// field manager. It returns false for a writer that is not recorded.
func (w *Writer) ByHand() bool {
	return w != nil && w.Operation != metav1.ManagedFieldsOperationApply && slices.Contains(byHand, w.Manager)
}
