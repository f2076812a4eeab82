// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// auditOptions are the flags of audit. A line is shown if it matches all flags.
type auditOptions struct {
	machine, cluster, action string
	kinds, outcomes          choice
	since, until             instant
	output                   format
}

func newAudit(o Options) *cobra.Command {
	a := auditOptions{
		output: textOr(wide, asJSON), kinds: choiceOf(audit.Kinds), outcomes: choiceOf(audit.Outcomes),
		since: instant{now: o.Now}, until: instant{now: o.Now},
	}
	cmd := &cobra.Command{
		Use:   "audit [FILE...]",
		Short: "Read the manager's decision audit log: which machine left, when, why, and on whose request",
		Long: `Read the decision audit log of managers, as --audit-log writes it.

Without FILE, and for -, standard input is read. Each line is one write that a manager
attempted or suppressed. A line that cannot be read is named, and the next is read; the
exit code is then 2.`,
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
	flags.StringVar(&a.action, "action", "", "only the departure of this `ID`, and what follows for it")
	flags.Var(&a.kinds, "kind", "only these kinds of action, separated by commas: "+a.kinds.all())
	flags.Var(&a.outcomes, "outcome", "only these outcomes, separated by commas: "+a.outcomes.all())
	flags.Var(&a.since, "since", "only from this time on: RFC 3339, or how long ago, such as 2h")
	flags.Var(&a.until, "until", "only before this time: RFC 3339, or how long ago")
	flags.VarP(&a.output, "output", "o", a.output.all()+": one line, or one object for each line")
	return cmd
}

func (a *auditOptions) run(o Options, files []string) error {
	if len(files) == 0 {
		files = []string{"-"}
	}
	show := linePrinter{a: a, out: o.Out, counts: map[audit.Outcome]int{}}
	unread := 0
	err := readLines(files, o.In, func(where string, raw []byte, err error) error {
		var line audit.Line
		if err == nil {
			line, err = audit.Parse(raw)
		}
		switch {
		case err != nil:
			unread++
			Report(o.Err, fmt.Errorf("%s: %s", where, oneLine(err.Error())))
			return nil
		case a.matchesFlags(line):
			return show.line(line)
		default:
			return nil
		}
	})
	if errors.As(err, new(failure)) {
		return err // The output cannot be written any more, for example because a pipe was closed.
	}
	if unread > 0 {
		err = errors.Join(err, fmt.Errorf("lines that could not be read: %d", unread))
	}
	return errors.Join(show.summary(err == nil), err)
}

func (a *auditOptions) matchesFlags(line audit.Line) bool {
	switch {
	case !selects(a.machine, line.Machine), !selects(a.cluster, line.Cluster):
		return false
	case a.action != "" && line.ActionID != a.action && !strings.HasPrefix(line.ActionID, a.action+"/"):
		return false
	case !a.kinds.has(string(line.Kind)), !a.outcomes.has(string(line.Outcome)):
		return false
	default:
		return !line.Time.Before(a.since.Time) && (a.until.IsZero() || line.Time.Before(a.until.Time))
	}
}

// selects reports whether a flag value selects key, which is NAMESPACE/NAME. An empty value selects every key.
func selects(value, key string) bool {
	return value == "" || value == key || !strings.Contains(value, "/") && value == path.Base(key)
}

// linePrinter prints lines and counts them by outcome.
type linePrinter struct {
	a      *auditOptions
	out    io.Writer
	count  int
	counts map[audit.Outcome]int
}

func (p *linePrinter) line(l audit.Line) error {
	p.counts[l.Outcome]++
	p.count++
	if p.a.output.value == asJSON {
		return writeJSON(p.out, l, "")
	}
	wide, head := p.a.output.value == wide, ""
	if p.count == 1 {
		head = auditRow("TIME", "KIND", "OUTCOME", "MACHINE, REASON AND ACTION", wide)
	}
	at := l.Time.Format(time.RFC3339)
	return write(p.out, head+auditRow(at, oneLine(string(l.Kind)), string(l.Outcome), oneLine(describeLine(l)), wide))
}

// summary prints the number of lines. complete is false if a file or a line was not read.
func (p *linePrinter) summary(complete bool) error {
	if p.a.output.value == asJSON || p.count == 0 && !complete {
		return nil
	}
	if p.count == 0 {
		return write(p.out, "No lines found.\n")
	}
	var words []string
	for _, outcome := range audit.Outcomes {
		if n := p.counts[outcome]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	return write(p.out, fmt.Sprintf("\nLines: %d (%s).\n", p.count, strings.Join(words, ", ")))
}

// auditRow returns one line if wide. Otherwise it puts the last column on lines of its own, which fit a terminal. The
// column widths are fixed for the longest kind and outcome, because streamed input cannot be measured first.
func auditRow(at, kind, outcome, what string, wide bool) string {
	line := fmt.Sprintf("%-20s  %-15s  %-18s", at, kind, outcome)
	if wide {
		return line + "  " + what + "\n"
	}
	return strings.TrimRight(line, " ") + "\n" + wrapped(what)
}

// describeLine returns the machine of a line, and why it was written to.
func describeLine(l audit.Line) string {
	what := cmp.Or(l.Machine, "all machines") + " of " + orDash(l.Cluster) + ": " + orDash(l.Reason)
	if l.Lane != "" {
		what += ", " + l.Lane
	}
	if l.By != "" {
		what += fmt.Sprintf(" (%s)", l.By)
	}
	if l.GraceSeconds > 0 {
		what += fmt.Sprintf(", %s of grace", seconds(l.GraceSeconds))
	}
	if l.ActionID != "" {
		what += "; " + l.ActionID
	}
	return what
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
