// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

// columns aligns lines whose cells end in tabs.
func columns(lines ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	for _, line := range lines {
		_, _ = fmt.Fprintln(w, line) // a Builder takes everything
	}
	_ = w.Flush()
	return b.String()
}

// table has one line for each machine.
func table(views []view, namespaces bool, now time.Time) string {
	lines := []string{"NAME\tCLUSTER\tPHASE\tREADY\tNODE\tNEXT\tWHY"}
	for i := range views {
		v := &views[i]
		lines = append(lines, strings.Join([]string{
			v.Name, v.Cluster, string(v.Phase), v.ready(), orDash(v.Node), v.next(now), short(append(v.Doubts, v.Why)[0]),
		}, "\t"))
	}
	if namespaces {
		lines[0] = "NAMESPACE\t" + lines[0]
		for i := range views {
			lines[i+1] = views[i].Namespace + "\t" + lines[i+1]
		}
	}
	return columns(lines...)
}

// next is the next step in the least of words.
func (v *view) next(now time.Time) string {
	if v.idle != "" { // the window may open and close, but nothing follows from it
		return "-"
	}
	for _, s := range v.steps() {
		return s.does + " " + relative(s.at, now)
	}
	return "-"
}

// detail is everything about one machine.
func (v *view) detail(now time.Time) string {
	window := "outside the window"
	switch {
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
	var notes []string
	if v.Stale {
		notes = append(notes, unseen)
	}
	lines = append(lines, labelled("Note:", append(notes, v.Doubts...))...)
	return columns(lines...) + v.conditionLines(now)
}

func (v *view) nextLines(now time.Time) []string {
	steps := v.steps()
	if len(steps) == 0 || v.idle != "" {
		return []string{"Next:\t" + v.nothingNext()}
	}
	lines := make([]string, len(steps))
	for i, s := range steps {
		lines[i] = fmt.Sprintf("%s\t%s %s: %s (%s)", []string{"Next:", "Then:"}[i], s.does, relative(s.at, now),
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

// relative says how far away an instant is. A passed one is overdue: the
// controller would have put a later one there.
func relative(at, now time.Time) string {
	if at.After(now) {
		return "in " + duration.HumanDuration(at.Sub(now))
	}
	return "now, overdue by " + duration.HumanDuration(now.Sub(at))
}

// indent puts the further lines of a message below its first.
func indent(message, margin string) string {
	return strings.ReplaceAll(strings.TrimRight(message, "\n"), "\n", "\n"+margin)
}

// short is a message on one line of a table.
func short(message string) string {
	const most = 72 // leaves the table readable on a wide terminal; detail has it all
	line, _, more := strings.Cut(message, "\n")
	if runes := []rune(line); len(runes) > most {
		line, more = strings.TrimRight(string(runes[:most]), " "), true
	}
	if more {
		line += "..."
	}
	return line
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
