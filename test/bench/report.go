// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// A report has all figures of a run.
type report struct {
	Host    string   `json:"host"`
	Seed    uint64   `json:"seed"`
	Figures []figure `json:"figures"`
}

// A figure is a distribution, or one number, which is then in Max.
type figure struct {
	Section string `json:"section"`
	What    string `json:"what"`
	Unit    string `json:"unit"`
	N       int    `json:"n"`

	P50 float64 `json:"p50,omitempty"`
	P90 float64 `json:"p90,omitempty"`
	P99 float64 `json:"p99,omitempty"`
	Max float64 `json:"max"`

	// Goal states the goal. Met reports whether the figure meets it.
	Goal string `json:"goal,omitempty"`
	Met  *bool  `json:"met,omitempty"`
	// Missing is the reason why there is no figure.
	Missing string `json:"missing,omitempty"`
	// Peer is the figure's object of comparison. Ratio is the figure divided by the peer's.
	Peer  string  `json:"peer,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
}

// spread is the distribution of durations, in milliseconds.
func spread(what string, ds []time.Duration) figure {
	values := make([]float64, len(ds))
	for i, d := range ds {
		values[i] = float64(d) / float64(time.Millisecond)
	}
	return spreadOf(what, "ms", values)
}

// spreadOf is the distribution of values. Without values the figure is missing: JSON has no number for it.
func spreadOf(what, unit string, values []float64) figure {
	if len(values) == 0 {
		return missing(what, errNothingSeen)
	}
	values = slices.Sorted(slices.Values(values))
	return figure{
		What: what, Unit: unit, N: len(values),
		P50: quantile(values, .5), P90: quantile(values, .9), P99: quantile(values, .99), Max: quantile(values, 1),
	}
}

// one is a single number.
func one(what, unit string, n int, value float64) figure {
	return figure{What: what, Unit: unit, N: n, Max: value}
}

var errNothingSeen = errors.New("not measured: nothing was seen")

// missing is a figure that could not be measured, with the reason.
func missing(what string, why error) figure { return figure{What: what, Missing: why.Error()} }

// quantile is the smallest of sorted values that a share q of them does not exceed.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// goal sets the goal of a figure. A missing figure meets no goal.
func (f figure) goal(text string, met bool) figure {
	met = met && f.Missing == ""
	f.Goal, f.Met = text, &met
	return f
}

// within reports whether the figure is at most that share of its peer's, false without a peer.
func (f figure) within(share float64) bool { return f.Peer != "" && f.Ratio <= share }

// against compares the figure with a peer's, by the medians or the numbers.
func (f figure) against(peer string, other figure) figure {
	if f.Missing != "" {
		return f
	}
	mine, theirs := f.Max, other.Max
	if f.P50 > 0 && other.P50 > 0 {
		mine, theirs = f.P50, other.P50
	}
	if theirs > 0 {
		f.Peer, f.Ratio = peer, mine/theirs
	}
	return f
}

// printTable writes figures for people.
func printTable(out io.Writer, figures []figure) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(w, "what\tunit\tn\tp50\tp90\tp99\tmax\tgoal\tpeer\n")
	for _, f := range figures {
		if f.Missing != "" {
			_, _ = fmt.Fprintf(w, "%s\t\t\t\t\t\t\t%s\t\n", f.What, f.Missing)
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t", f.What, f.Unit, f.N)
		if f.P50+f.P90+f.P99 > 0 {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t", number(f.P50), number(f.P90), number(f.P99))
		} else {
			_, _ = fmt.Fprint(w, "\t\t\t")
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", number(f.Max), f.judged(), f.compared())
	}
	_ = w.Flush()
	_, _ = fmt.Fprintln(out)
}

// String is the figure in one line.
func (f figure) String() string {
	if f.Missing != "" {
		return f.What + ": " + f.Missing
	}
	s := fmt.Sprintf("%s: max %s %s", f.What, number(f.Max), f.Unit)
	if f.P50+f.P90+f.P99 > 0 {
		s = fmt.Sprintf("%s: p50 %s, p99 %s, max %s %s", f.What, number(f.P50), number(f.P99), number(f.Max), f.Unit)
	}
	if f.Goal != "" {
		s += "; goal " + f.judged()
	}
	return s
}

func (f figure) judged() string {
	switch {
	case f.Met == nil:
		return f.Goal
	case *f.Met:
		return f.Goal + ": met"
	default:
		return f.Goal + ": MISSED"
	}
}

func (f figure) compared() string {
	if f.Peer == "" {
		return ""
	}
	return fmt.Sprintf("%s × %s", number(f.Ratio), f.Peer)
}

// number formats v with three significant digits.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == math.Trunc(v) || math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func (r report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o600)
}
