// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

// The width that text output fits into, as far as names allow, and the space between two columns.
const (
	terminal = 80
	gap      = 3
)

// columns aligns cells that are separated by tabs.
func columns(lines ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, gap, ' ', 0)
	for _, line := range lines {
		_, _ = fmt.Fprintln(w, line) // a Builder returns no error
	}
	_ = w.Flush()
	return b.String()
}

// fitted is a table whose last column is cut, so that a line has at most width characters.
func fitted(rows [][]string, width int) string {
	used := 0
	for column := range len(rows[0]) - 1 {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[column]))
		}
		used += widest + gap
	}
	const least = 20 // A shorter last column would be useless: the names are then too long.
	return columns(convert(rows, func(row []string) string {
		last := len(row) - 1
		return strings.Join(append(row[:last:last], short(row[last], max(least, width-used))), "\t")
	})...)
}

// wrapped breaks text into lines of at most terminal characters. The first begins with two spaces, the others with
// four. A longer word gets a line of its own.
func wrapped(text string) string {
	var b strings.Builder
	line := " "
	for word := range strings.FieldsSeq(text) {
		if line != " " && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > terminal {
			b.WriteString(line + "\n")
			line = "   "
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// table has one line for each machine. A wide table has all columns, and may exceed the width of a terminal.
func table(views []view, namespaces, wide bool, now time.Time) string {
	rows, width := [][]string{{"NAME", "STATE", "NEXT", "WHY"}}, terminal
	if wide {
		rows[0], width = []string{"NAME", "CLUSTER", "PHASE", "READY", "NODE", "NEXT", "WHY"}, math.MaxInt
	}
	for i := range views {
		v := &views[i]
		row := []string{v.Name, string(v.state), v.next(now), append(v.Warnings, v.Why)[0]}
		if wide {
			row = []string{v.Name, v.Cluster, string(v.Phase), v.ready(), orDash(v.Node), row[2], strings.Join(strings.Fields(row[3]), " ")}
		}
		rows = append(rows, row)
	}
	if namespaces {
		rows[0] = slices.Insert(rows[0], 0, "NAMESPACE")
		for i := range views {
			rows[i+1] = slices.Insert(rows[i+1], 0, views[i].Namespace)
		}
	}
	return fitted(rows, width)
}

// next is the next step in as few words as possible.
func (v *view) next(now time.Time) string {
	steps := v.steps()
	switch {
	case len(steps) == 0, v.idle != "": // An idle machine's window may open and close, but with no effect.
		return "-"
	case !steps[0].at.After(now):
		return "overdue " + duration.HumanDuration(now.Sub(steps[0].at))
	default:
		return steps[0].verb + " " + relative(steps[0].at, now)
	}
}

func (v *view) detail(now time.Time) string {
	window := "outside the window"
	switch {
	case v.awaitsResume:
		window = "kept away until it is resumed"
	case !v.Enabled:
		window = "its schedule is off"
	case v.InSchedule:
		window = "inside the window"
	}
	lines := []string{
		"Name:\t" + v.Name,
		"Namespace:\t" + v.Namespace,
		"Cluster:\t" + v.Cluster,
		"Schedule:\t" + v.Schedule + ", " + v.Timezone,
		"Phase:\t" + string(v.Phase) + ", " + window,
		"Why:\t" + indent(v.Why, "\t"),
	}
	lines = append(lines, v.nextLines(now)...)
	lines = append(lines, "Machine:\t"+orDash(v.Machine), "Node:\t"+orDash(v.Node))
	lines = append(lines, labelled("Back:", v.Back)...)
	var notes []string
	if v.Stale {
		notes = append(notes, notObserved)
	}
	lines = append(lines, labelled("Note:", append(notes, v.Warnings...))...)
	return columns(lines...) + v.conditionLines(now)
}

func (v *view) nextLines(now time.Time) []string {
	steps := v.steps()
	if len(steps) == 0 || v.idle != "" {
		return []string{"Next:\t" + v.nothingNext()}
	}
	lines := make([]string, len(steps))
	for i, s := range steps {
		lines[i] = fmt.Sprintf("%s\t%s %s: %s (%s)", []string{"Next:", "Then:"}[i], s.verb, relative(s.at, now),
			plan.Local(s.at, v.zone), s.at.UTC().Format(time.RFC3339))
	}
	return lines
}

func (v *view) conditionLines(now time.Time) string {
	lines := []string{"Conditions:"}
	for _, c := range v.Conditions {
		age := duration.HumanDuration(now.Sub(c.LastTransitionTime.Time))
		lines = append(lines, fmt.Sprintf("  %s\t%s\t%s\t%s\t%s", c.Type, c.Status, c.Reason, age, indent(c.Message, "  \t\t\t\t")))
	}
	if len(lines) == 1 {
		lines[0] += " none"
	}
	return columns(lines...)
}

// relative returns the time until an instant. A past instant is overdue: a controller would have replaced it by a later
// one.
func relative(at, now time.Time) string {
	if at.After(now) {
		return "in " + duration.HumanDuration(at.Sub(now))
	}
	return "now, overdue by " + duration.HumanDuration(now.Sub(at))
}

// indent adds margin to every line of a message after the first.
func indent(message, margin string) string {
	return strings.ReplaceAll(strings.TrimRight(message, "\n"), "\n", "\n"+margin)
}

// short cuts a message to one line of at most that many characters.
func short(message string, most int) string {
	const more = "..."
	line, _, cut := strings.Cut(message, "\n")
	runes := []rune(line)
	if !cut && len(runes) <= most {
		return line
	}
	return strings.TrimRight(string(runes[:min(len(runes), most-len(more))]), " ") + more
}

func orDash(s string) string { return cmp.Or(s, "-") }

// convert returns f of each element.
func convert[T, U any](list []T, f func(T) U) []U {
	converted := make([]U, len(list))
	for i, element := range list {
		converted[i] = f(element)
	}
	return converted
}
