// SPDX-License-Identifier: Apache-2.0

// Package writer answers one question: who wrote a field of an object, as Kubernetes
// remembers it? It knows which programs are a person's hand, and nothing else of them.
package writer

import (
	"bytes"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Enabled is the field that lends a machine.
var Enabled = fieldpath.MakePathOrDie("spec", "schedule", "enabled")

// Plugin is the field manager of kubectl-5spot.
const Plugin = "kubectl-5spot"

// A Writer is a program that wrote a field, such as kubectl-patch, and when it last
// wrote to the object. Its JSON is an API.
type Writer struct {
	Manager string `json:"manager"`
	// Operation is Apply for server-side apply, else Update.
	Operation metav1.ManagedFieldsOperationType `json:"operation,omitempty"`
	At        *metav1.Time                      `json:"at,omitempty"`
}

// Last returns who set a field, or anything below it; nil if nobody is recorded. Of
// several, all of whom set it to what it is, it is the one who wrote last; who set it to
// something else before is not recorded.
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

// LastFunc is Last for the writers whose fields satisfy owns. An entry that cannot be read is
// skipped.
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

// Time is when the writer wrote last, zero if nobody knows.
func (w *Writer) Time() time.Time {
	if w == nil || w.At == nil {
		return time.Time{}
	}
	return w.At.Time
}

// String names the program and how it wrote.
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

// byHand are the programs with which a person changes one field at one time. "kubectl
// apply" and "kubectl replace" are not among them: they write what stands in a file.
var byHand = []string{Plugin, "kubectl-edit", "kubectl-patch"}

// ByHand reports whether a person wrote the field, as far as the name of the program
// tells: whoever writes may choose it. Nobody knows of one that is not recorded.
func (w *Writer) ByHand() bool {
	return w != nil && w.Operation != metav1.ManagedFieldsOperationApply && slices.Contains(byHand, w.Manager)
}
