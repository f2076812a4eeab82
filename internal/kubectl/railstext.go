// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

// text shows a Cluster to people: counts, a table of machines, causes, and the next change. Each cause is one sentence
// below the table, with the names of its machines.
func (c *clusterRails) text(wide bool, now time.Time) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s/%s: %s\n", c.Namespace, c.Cluster, c.counts())
	if len(c.Machines) > 0 {
		text.WriteString(columns(c.table(wide, now)...))
	}
	for _, w := range c.causes(now) {
		text.WriteString(wrapped(w))
	}
	if slices.ContainsFunc(c.Machines, func(r railsRow) bool { return r.State == railPaused }) {
		text.WriteString(wrapped(c.afterPause()))
	}
	if c.LeavesNext != "" {
		fmt.Fprintf(&text, "  Leaves next: %s\n", c.LeavesNext)
	}
	if n := c.Next; n != nil {
		text.WriteString(wrapped(fmt.Sprintf("Next: %s closes %s: %s (%s)", n.Name, relative(n.At.Time, now), plan.Local(n.At.Time, n.zone), n.At.UTC().Format(time.RFC3339))))
	}
	for _, line := range sentences(c.Warnings) {
		text.WriteString(wrapped(line))
	}
	return text.String()
}

func (c *clusterRails) table(wide bool, now time.Time) []string {
	lines := []string{"  NAME\tSTATE\tSINCE\tREASON\tLANE"}
	if wide {
		lines[0] += "\tMACHINE\tACTION"
	}
	for i := range c.Machines {
		r := &c.Machines[i]
		since := "-"
		if r.Since != nil {
			since = duration.HumanDuration(now.Sub(r.Since.Time))
		}
		line := "  " + strings.Join([]string{r.Name, string(r.State), since, orDash(oneLine(r.Reason)), orDash(oneLine(string(r.Lane)))}, "\t")
		if wide {
			line += "\t" + orDash(r.Machine) + "\t" + orDash(oneLine(r.ActionID))
		}
		lines = append(lines, line)
	}
	return lines
}

// causes returns each distinct cause once, in the order of the first machine of each. It names the first two machines.
func (c *clusterRails) causes(now time.Time) []string {
	var order []string
	names := map[string][]string{}
	for i := range c.Machines {
		r := &c.Machines[i]
		for _, why := range []string{r.Message, r.overdueNote(now)} {
			if why == "" {
				continue
			}
			if names[why] == nil {
				order = append(order, why)
			}
			names[why] = append(names[why], r.Name)
		}
	}
	for i, why := range order {
		order[i] = firstTwo(names[why]) + ": " + why
	}
	return order
}

// firstTwo names the first two, and counts the others.
func firstTwo(names []string) string {
	text := strings.Join(names[:min(len(names), 2)], ", ")
	if more := len(names) - 2; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// afterPause counts the paused machines that leave once the pause ends.
func (c *clusterRails) afterPause() string {
	waiting := "none is waiting to leave"
	if n := len(c.LeaveAfterPause); n > 0 {
		waiting = counted(n, "machine is", "machines are") + " waiting to leave: " + firstTwo(c.LeaveAfterPause)
	}
	return "Paused: no paused machine starts to leave until the pause ends; " + waiting
}

// overdueNote returns how long ago the budget of a departure ended, empty if it has not.
func (r *railsRow) overdueNote(now time.Time) string {
	if r.GraceEnded == nil {
		return ""
	}
	return fmt.Sprintf("late, its grace ended %s ago; it counts as leaving until its Machine is gone", duration.HumanDuration(now.Sub(r.GraceEnded.Time)))
}

// counts returns the number of machines in total and in each state.
func (c *clusterRails) counts() string {
	by := map[railsState]int{}
	for i := range c.Machines {
		by[c.Machines[i].State]++
	}
	words := []string{counted(c.Total, "ScheduledMachine", "ScheduledMachines")}
	for _, s := range railsStates {
		if by[s] > 0 {
			words = append(words, fmt.Sprintf("%d %s", by[s], s))
		}
	}
	switch {
	case c.LeavingUnknown:
		words = append(words, "who is leaving is unknown")
	case len(c.Machines) == 0:
		words = append(words, "nothing is kept, and nothing leaves")
	}
	return strings.Join(words, ", ")
}
