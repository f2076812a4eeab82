// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

// text is a Cluster for people: how many, which, and what comes next.
func (c *clusterRails) text(now time.Time) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s/%s: %s\n", c.Namespace, c.Cluster, c.counts())
	if len(c.Machines) > 0 {
		lines := []string{"  NAME\tSTATE\tSINCE\tREASON\tLANE\tWHY"}
		for i := range c.Machines {
			lines = append(lines, c.Machines[i].text(now))
		}
		text.WriteString(columns(lines...))
	}
	if c.LeavesNext != "" {
		fmt.Fprintf(&text, "  Leaves next: %s\n", c.LeavesNext)
	}
	if n := c.Next; n != nil {
		fmt.Fprintf(&text, "  Next: %s closes %s: %s (%s)\n", n.Name, relative(n.At.Time, now), plan.Local(n.At.Time, n.zone), n.At.UTC().Format(time.RFC3339))
	}
	for _, line := range sentences(c.Doubts) {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	return text.String()
}

// counts says how many machines there are, and how many of them are in which state.
func (c *clusterRails) counts() string {
	by := map[railsState]int{}
	for i := range c.Machines {
		by[c.Machines[i].State]++
	}
	words := []string{fmt.Sprintf("%d ScheduledMachines", c.Total)}
	if c.Total == 1 {
		words[0] = "1 ScheduledMachine"
	}
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

func (r *railed) text(now time.Time) string {
	since := "-"
	if r.Since != nil {
		since = duration.HumanDuration(now.Sub(r.Since.Time))
	}
	why := r.Message
	if why == "" {
		why = "Machine " + r.Machine
	}
	if r.GraceEnded != nil {
		why += fmt.Sprintf(": late, its grace ended %s ago; it counts as leaving until its Machine is gone", duration.HumanDuration(now.Sub(r.GraceEnded.Time)))
	}
	return "  " + strings.Join([]string{r.Name, string(r.State), since, orDash(r.Reason), orDash(string(r.Lane)), indent(why, "  \t\t\t\t\t")}, "\t")
}
