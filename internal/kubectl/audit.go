// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// auditOptions are the flags of audit. An action is shown if at least one of its lines matches all flags.
type auditOptions struct {
	machine, cluster, action string
	kinds, outcomes          choice
	since, until             past
	output                   tableFormat
}

func newAudit(o Options) *cobra.Command {
	a := auditOptions{output: tableFormat{text}, kinds: choiceOf(audit.Kinds), outcomes: choiceOf(audit.Outcomes)}
	cmd := &cobra.Command{
		Use:   "audit [FILE...]",
		Short: "Read the manager's decision audit log: which machine left, when, why, and on whose request",
		Long: `Read the decision audit log of managers, as --audit-log writes it.

Without FILE, and for -, standard input is read. Each action is printed once, when its
last line is read: its tries are told together. Actions without a last line come at the
end. A line that cannot be read is named, and the next is read; the exit code is then 2.`,
		Example: `  kubectl 5spot audit audit.jsonl
  kubectl 5spot audit --machine farm/office-hours --since 2d audit.jsonl.1 audit.jsonl
  tail -f audit.jsonl | kubectl 5spot audit --kind EmergencyRemove,KillSwitch`,
		RunE: func(_ *cobra.Command, files []string) error {
			return a.run(o, files)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.machine, "machine", "", "only this ScheduledMachine: `NAME`, or NAMESPACE/NAME")
	flags.StringVar(&a.cluster, "cluster", "", "only this Cluster: `NAME`, or NAMESPACE/NAME")
	flags.StringVar(&a.action, "action", "", "only the action of this `ID`, and what follows for the same departure")
	flags.Var(&a.kinds, "kind", "only these kinds of action, separated by commas: "+a.kinds.all())
	flags.Var(&a.outcomes, "outcome", "only actions with a try that had one of these outcomes: "+a.outcomes.all())
	flags.Var(&a.since, "since", "only from this time on: RFC 3339, or how long ago, such as 2h")
	flags.Var(&a.until, "until", "only before this time: RFC 3339, or how long ago")
	flags.VarP(&a.output, "output", "o", tableFormats+": one line, or one object for each action and line")
	return cmd
}

func (a *auditOptions) run(o Options, files []string) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	show, now := actionPrinter{a: a, out: o.Out}, o.Now()
	var log actions
	unread := 0
	err := readLines(files, o.In, func(where string, raw []byte, err error) error {
		var line audit.Line
		if err == nil {
			line, err = audit.Parse(raw)
		}
		if err != nil {
			unread++
			Report(o.Err, fmt.Errorf("%s: %s", where, oneLine(err.Error())))
			return nil
		}
		if action, ended := log.add(line, a.matchesFlags(line, now)); ended {
			return show.action(action)
		}
		return nil
	})
	if errors.As(err, new(failure)) {
		return err // The output cannot be written any more, for example because a pipe was closed.
	}
	if unread > 0 {
		err = errors.Join(err, fmt.Errorf("lines that could not be read: %d", unread))
	}
	return errors.Join(show.end(log.left(), err == nil), err)
}

// matchesFlags reports whether a line matches all flags.
func (a *auditOptions) matchesFlags(line audit.Line, now time.Time) bool {
	since, until := a.since.at(now), a.until.at(now)
	switch {
	case !names(a.machine, line.Machine), !names(a.cluster, line.Cluster):
		return false
	case a.action != "" && line.ActionID != a.action && !strings.HasPrefix(line.ActionID, a.action+"/"):
		return false
	case !a.kinds.has(string(line.Kind)), !a.outcomes.has(string(line.Outcome)):
		return false
	default:
		return !line.Time.Before(since) && (until.IsZero() || line.Time.Before(until))
	}
}

// names reports whether a flag value selects key, which is NAMESPACE/NAME. An empty value selects every key.
func names(want, key string) bool {
	return want == "" || want == key || !strings.Contains(want, "/") && want == path.Base(key)
}

// actionPrinter prints actions and counts them.
type actionPrinter struct {
	a      *auditOptions
	out    io.Writer
	header bool
	count  int
	by     map[audit.Outcome]int
}

// action prints a, if one of its lines matched the flags.
func (s *actionPrinter) action(a action) error {
	if !a.matched {
		return nil
	}
	if s.by == nil {
		s.by = map[audit.Outcome]int{}
	}
	s.by[a.Outcome]++
	s.count++
	if s.a.output.format == asJSON {
		return writeJSON(s.out, a, "")
	}
	wide, head := s.a.output.format == wide, ""
	if !s.header {
		s.header, head = true, actionLine("TIME", "KIND", "OUTCOME", "MACHINE, REASON AND ACTION", wide)
	}
	return write(s.out, head+a.text(wide))
}

// end prints the actions without a last line, then the summary. complete is false if a file or a line was not read.
func (s *actionPrinter) end(open []action, complete bool) error {
	ended := s.count
	for _, a := range open {
		if err := s.action(a); err != nil {
			return err
		}
	}
	if s.a.output.format == asJSON || s.count == 0 && !complete {
		return nil
	}
	return write(s.out, s.summary(s.count-ended))
}

// summary counts the printed actions by outcome. open is the number of actions without a last line.
func (s *actionPrinter) summary(open int) string {
	if s.count == 0 {
		return "No actions found.\n"
	}
	var counts []string
	for _, outcome := range audit.Outcomes {
		if n := s.by[outcome]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	text := fmt.Sprintf("\nActions: %d (%s).\n", s.count, strings.Join(counts, ", "))
	if open > 0 {
		text += fmt.Sprintf("Without a last line: %d (tried again, unless the manager has ended).\n", open)
	}
	return text
}
