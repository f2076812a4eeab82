// SPDX-License-Identifier: Apache-2.0

// Command judge reads audit logs of API servers and of 5-Spot's manager, and reports the broken rules. It exits with 1
// if a rule was broken, and with 2 if a log cannot be read.
//
//	judge --audit management/audit.log --audit workload/audit.log --decisions audit.jsonl --cap 0.05
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

type options struct {
	audit, paused, shadow paths
	decisions, settled    string
	fraction              float64
	wipe                  bool
}

// paths is a flag that may be given several times.
type paths []string

func (p *paths) String() string { return strings.Join(*p, " ") }

// Set implements flag.Value.
func (p *paths) Set(path string) error {
	*p = append(*p, path)
	return nil
}

func main() {
	var o options
	flag.Var(&o.audit, "audit", "`File` with the audit log of an API server, as JSON lines with bodies. May be given several times: for the management cluster and for workload clusters.")
	flag.StringVar(&o.decisions, "decisions", "", "`File` with the manager's audit log. Turns rule lines on.")
	flag.Float64Var(&o.fraction, "cap", 0, "`Fraction` of the machines of a Cluster that may start to leave in 10 s. Turns rule cap on.")
	flag.BoolVar(&o.wipe, "wipe-guard", false, "The manager had it on. Turns rule wipe on.")
	flag.Var(&o.paused, "paused", "`Time` in which actuation was paused, such as 2026-03-02T17:00:00Z/2026-03-02T18:00:00Z. Turns rule silence on. May be given several times.")
	flag.Var(&o.shadow, "shadow", "`Time` of shadow mode, in the same form.")
	flag.StringVar(&o.settled, "settled", "", "`Time` in which nothing happened, in the same form. Turns rule settled on.")
	flag.Parse()
	broken, err := run(o, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2) //nolint:forbidigo // this is main
	case broken:
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(o options, out io.Writer) (broken bool, err error) {
	if len(o.audit) == 0 {
		return false, errors.New("name an audit log with --audit")
	}
	rules, err := rulesOf(o)
	if err != nil {
		return false, err
	}
	if o.wipe {
		rules = append(rules, judge.Wipe())
	}
	var logs []iter.Seq2[judge.Record, error]
	for _, path := range o.audit {
		f, err := os.Open(path) //nolint:gosec // an argument of the program
		if err != nil {
			return false, err
		}
		defer func() { _ = f.Close() }()
		logs = append(logs, judge.Read(path, f))
	}
	if o.decisions != "" {
		f, err := os.Open(o.decisions)
		if err != nil {
			return false, err
		}
		defer func() { _ = f.Close() }()
		logs = append(logs, judge.ReadLines(f))
	}
	ruling, err := judge.Run(judge.Merge(logs...), rules...)
	if err != nil {
		return false, err
	}
	return len(ruling.Breaks) > 0, ruling.Print(out, rules)
}

func rulesOf(o options) ([]judge.Rule, error) {
	rules := judge.Default()
	if o.fraction != 0 {
		if !(o.fraction > 0 && o.fraction <= 1) {
			return nil, fmt.Errorf("--cap is %v, and should be above 0 and at most 1", o.fraction)
		}
		rules = append(rules, judge.Cap(int64(math.Round(o.fraction*1e6))))
	}
	if o.decisions != "" {
		rules = append(rules, judge.Lines(len(o.audit) > 1))
	}
	var silences []judge.Silence
	for _, given := range []struct {
		times  []string
		shadow bool
	}{{o.paused, false}, {o.shadow, true}} {
		for _, text := range given.times {
			from, to, err := interval(text)
			if err != nil {
				return nil, err
			}
			silences = append(silences, judge.Silence{From: from, To: to, Shadow: given.shadow})
		}
	}
	if len(silences) > 0 {
		rules = append(rules, judge.Quiet(silences...))
	}
	if o.settled != "" {
		from, to, err := interval(o.settled)
		if err != nil {
			return nil, err
		}
		rules = append(rules, judge.Settled(from, to))
	}
	return rules, nil
}

func interval(text string) (from, to time.Time, err error) {
	first, last, _ := strings.Cut(text, "/")
	from, err = time.Parse(time.RFC3339Nano, first)
	if err != nil {
		return from, to, err
	}
	to, err = time.Parse(time.RFC3339Nano, last)
	return from, to, err
}
