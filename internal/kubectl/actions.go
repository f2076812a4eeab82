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

// An action collects the audit log lines of one action ID. Its JSON is an API.
type action struct {
	// Line is the latest line.
	audit.Line
	// First is the time of the first line.
	First time.Time `json:"first"`
	// Before counts the earlier lines by outcome.
	Before map[audit.Outcome]int `json:"before,omitempty"`
	// Final reports that Line is the action's last line.
	Final bool `json:"final"`

	matched bool
}

// actions holds the actions whose last line has not been read yet. The zero value holds none.
type actions struct{ open map[string]*action }

// add records a line. It returns the action, and true, if the line is the last one.
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

// left returns the actions without a last line, the earliest first.
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

// actionLine returns one line if wide. Otherwise it puts the last column on lines of its own, which fit a terminal. The
// column widths are fixed for the longest kind and outcome, because streamed input cannot be measured first.
func actionLine(at, kind, outcome, what string, wide bool) string {
	line := fmt.Sprintf("%-20s  %-15s  %-18s", at, kind, outcome)
	if wide {
		return line + "  " + what + "\n"
	}
	return strings.TrimRight(line, " ") + "\n" + wrapped(what)
}

// text returns the action on one line if wide, otherwise on lines that fit a terminal.
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

// before lists the outcomes before the last line, with their counts.
func (a *action) before() string {
	var counts []string
	for _, outcome := range audit.Outcomes {
		if n := a.Before[outcome]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	return strings.Join(counts, " and ")
}

// oneLine replaces line breaks, so that text from the log cannot imitate an output line of this program.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "\ufffd") }

// seconds formats n seconds. A value too large for a time.Duration is printed in seconds.
func seconds(n int64) string {
	if d := time.Duration(n) * time.Second; int64(d/time.Second) == n {
		return d.String()
	}
	return strconv.FormatInt(n, 10) + "s"
}
