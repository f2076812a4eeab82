// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"strconv"
	"strings"
)

// FieldError is one bad value, where it stands and how to write it instead.
type FieldError struct {
	// Field is the path below the Spec, such as "hoursOfDay[0]". It is empty for
	// a value that stands alone.
	Field string

	// Value is the offending text; of a very long one, the beginning.
	Value string

	// Reason says what is wrong.
	Reason string

	// Help says what would be right.
	Help string
}

// Error reads like an error of the Kubernetes API: field, value, detail.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Detail()
	}
	return e.Field + ": Invalid value: " + strconv.Quote(e.Value) + ": " + e.Detail()
}

// Detail is the error without field and value, for callers that print those themselves.
func (e *FieldError) Detail() string {
	return e.Reason + "; " + e.Help
}

// FieldErrors returns the errors of which err, from this package, is made.
func FieldErrors(err error) []*FieldError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*FieldError
		for _, e := range joined.Unwrap() {
			all = append(all, FieldErrors(e)...)
		}
		return all
	}
	if one, ok := errors.AsType[*FieldError](err); ok {
		return []*FieldError{one}
	}
	return nil
}

// reason is what is wrong with a piece of text. These sentences are older than
// this package: people search for them, so they stay as they are.
type reason string

func (r reason) Error() string { return string(r) }

// clip shortens what is too long to be repeated in an error.
func clip(s string) string {
	const most = 64 // bytes: a line of a terminal with room for the rest of the error
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
