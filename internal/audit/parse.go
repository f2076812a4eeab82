// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ErrNoLine reports that a text is not a line of an audit log.
var ErrNoLine = errors.New("no line of an audit log")

// Parse parses one line, with or without its newline. The time of the result is in UTC. The error is ErrNoLine
// if the text is not one JSON object, or lacks a time, a kind or a known outcome. Unknown fields and kinds, such as from
// a later version, are no error.
func Parse(text []byte) (Line, error) {
	var l Line
	if err := json.Unmarshal(text, &l); err != nil {
		return Line{}, fmt.Errorf("%w: %w", ErrNoLine, err)
	}
	l.Time = l.Time.UTC()
	var missing string
	switch {
	case l.Time.IsZero():
		missing = "time"
	case l.Kind == "":
		missing = "kind"
	case l.Outcome == "":
		missing = "outcome"
	case !slices.Contains(Outcomes, l.Outcome):
		return Line{}, fmt.Errorf("%w: unknown outcome %q", ErrNoLine, l.Outcome)
	default:
		return l, nil
	}
	return Line{}, fmt.Errorf("%w: it has no %s", ErrNoLine, missing)
}
