// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"strconv"
	"strings"
)

// FieldError describes one invalid value, its field, and the accepted form.
type FieldError struct {
	// Field is the path below the Spec, such as "hoursOfDay[0]". It is empty for a value without a field.
	Field string

	// Value is the invalid text, truncated if it is long.
	Value string

	// Reason describes the error.
	Reason string

	// Help describes the accepted form.
	Help string
}

// Error formats the error like the Kubernetes API: field, value, detail.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Detail()
	}
	return e.Field + ": Invalid value: " + strconv.Quote(e.Value) + ": " + e.Detail()
}

// Detail returns the error without field and value, for callers that print these.
func (e *FieldError) Detail() string {
	return e.Reason + "; " + e.Help
}

// FieldErrors returns the individual errors in err, which must come from this package.
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

// reason is the error in a piece of text. These sentences are older than this package. They stay unchanged
// because people search for them.
type reason string

func (r reason) Error() string { return string(r) }

// clip truncates a value that is too long for an error.
func clip(s string) string {
	const most = 64 // bytes: most of a terminal line
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
