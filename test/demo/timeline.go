// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// columns is the width of a terminal that shows the output without line breaks.
const columns = 100

// A timeline prints events. Each line has the time since the start and since the line before, and, after the start of
// the owner's program, the time since then.
type timeline struct {
	out         io.Writer
	clock       clock.PassiveClock
	start, last time.Time
	exec        time.Time
}

func newTimeline(out io.Writer) *timeline {
	t := &timeline{out: out, clock: clock.RealClock{}}
	t.start = t.clock.Now()
	t.last = t.start
	_, _ = fmt.Fprintf(out, "%10s %10s\n", "since", "since step")
	_, _ = fmt.Fprintf(out, "%10s %10s\n", "start", "before")
	return t
}

// say prints an event that just happened.
func (t *timeline) say(format string, args ...any) {
	t.tellAt(t.clock.Now(), fmt.Sprintf(format, args...))
}

// tellAt prints an event with its time.
func (t *timeline) tellAt(when time.Time, text string) {
	prefix := fmt.Sprintf("%8.2f s %+8.2f s  ", when.Sub(t.start).Seconds(), when.Sub(t.last).Seconds())
	if !t.exec.IsZero() {
		prefix += fmt.Sprintf("%9.1f ms  ", float64(when.Sub(t.exec).Microseconds())/1000)
	}
	_, _ = fmt.Fprintf(t.out, "%s%s\n", prefix, wrap(text, columns-len(prefix), "\n"+strings.Repeat(" ", len(prefix))))
	t.last = when
}

// executed starts the count of milliseconds; executed(zero) ends it.
func (t *timeline) executed(at time.Time) {
	t.exec = at
	if !at.IsZero() {
		_, _ = fmt.Fprintf(t.out, "%36s\n", "since exec")
	}
}

// quote shows a text as it is, indented.
func (t *timeline) quote(text string) {
	_, _ = fmt.Fprintln(t.out)
	for line := range strings.Lines(strings.TrimSpace(text)) {
		_, _ = fmt.Fprint(t.out, "      ", line)
	}
	_, _ = fmt.Fprint(t.out, "\n\n")
}

// wrap puts a separator between words, so that lines have at most width columns. A longer word has a line of its own.
func wrap(text string, width int, separator string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			_, _ = b.WriteString(separator)
			column = 0
		default:
			_ = b.WriteByte(' ')
			column++
		}
		_, _ = b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
