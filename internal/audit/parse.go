// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ErrNoLine says that a text is no line of an audit log.
var ErrNoLine = errors.New("no line of an audit log")

// Parse reads one line, with or without its end; its time is in UTC. The error is ErrNoLine if it is not all of one
// JSON object, or lacks what every line has: a time, a kind, an action id and an outcome of
// Outcomes, without which nobody can tell whether more follows. Other fields and kinds, such
// as those of a later version, are no error.
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
	case l.ActionID == "":
		missing = "action_id"
	case l.Outcome == "":
		missing = "outcome"
	case !slices.Contains(Outcomes, l.Outcome):
		return Line{}, fmt.Errorf("%w: nobody knows the outcome %q", ErrNoLine, l.Outcome)
	default:
		return l, nil
	}
	return Line{}, fmt.Errorf("%w: it has no %s", ErrNoLine, missing)
}
