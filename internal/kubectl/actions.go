// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// An action is what an audit log says of one action id. Its JSON is an API.
type action struct {
	// Line is the last so far.
	audit.Line
	// First is the time of the first.
	First time.Time `json:"first"`
	// Before are the lines before the last, by outcome.
	Before map[audit.Outcome]int `json:"before,omitempty"`
	// Final says that nothing more is said of the action.
	Final bool `json:"final"`

	matched bool
}

// actions are those whose last line has not been read yet. The zero value has none.
type actions struct{ open map[string]*action }

// add adds a line to its action, and returns that if it has ended.
func (l *actions) add(line audit.Line, matched bool) (action, bool) {
	a := l.open[line.ActionID]
	if a == nil {
		a = &action{First: line.Time}
	} else {
		if a.Before == nil {
			a.Before = map[audit.Outcome]int{}
		}
		a.Before[a.Outcome]++
	}
	a.Line, a.Final, a.matched = line, line.Outcome.Final(), a.matched || matched
	if a.Final {
		delete(l.open, line.ActionID)
		return *a, true
	}
	if l.open == nil {
		l.open = map[string]*action{}
	}
	l.open[line.ActionID] = a
	return action{}, false
}

// left are the actions that have not ended, the earliest first.
func (l *actions) left() []action {
	list := make([]action, 0, len(l.open))
	for _, a := range l.open {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b action) int {
		if c := a.First.Compare(b.First); c != 0 {
			return c
		}
		return strings.Compare(a.ActionID, b.ActionID)
	})
	return list
}

// actionLine is one line if it may be wide. Else the last column has lines of its own, so that all
// fit a terminal. The columns are as wide as the longest kind and outcome: input that is read piece
// by piece cannot be measured first.
func actionLine(at, kind, outcome, what string, wide bool) string {
	line := fmt.Sprintf("%-20s  %-15s  %-18s", at, kind, outcome)
	if wide {
		return line + "  " + what + "\n"
	}
	return strings.TrimRight(line, " ") + "\n" + wrapped(what)
}

// text is the action on one line if it may be wide, else on lines that fit a terminal.
func (a *action) text(wide bool) string {
	what := a.Machine
	if what == "" {
		what = "all machines"
	}
	what += " of " + orDash(a.Cluster) + ": " + orDash(a.Reason)
	if a.Lane != "" {
		what += ", " + a.Lane
	}
	if a.By != "" {
		what += fmt.Sprintf(" (%s)", a.By)
	}
	if a.GraceSeconds > 0 {
		what += fmt.Sprintf(", %s of grace", seconds(a.GraceSeconds))
	}
	if len(a.Before) > 0 {
		what += fmt.Sprintf("; after %s in %s", a.before(), duration.HumanDuration(a.Time.Sub(a.First)))
	}
	what += "; " + a.ActionID
	return actionLine(a.Time.Format(time.RFC3339), oneLine(string(a.Kind)), string(a.Outcome), oneLine(what), wide)
}

// before counts what came before the last line.
func (a *action) before() string {
	var counts []string
	for _, outcome := range audit.Outcomes {
		if n := a.Before[outcome]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	return strings.Join(counts, " and ")
}

// oneLine keeps what others wrote from looking like a line of ours.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "\ufffd") }

// seconds is a length of time for people, also one that is longer than a Duration can be.
func seconds(n int64) string {
	if d := time.Duration(n) * time.Second; int64(d/time.Second) == n {
		return d.String()
	}
	return strconv.FormatInt(n, 10) + "s"
}
