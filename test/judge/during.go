// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"
)

// A Span is a period. It includes its ends.
type Span struct{ From, To time.Time }

// During returns a rule that reports the verdicts of rule only for records within times. rule still sees all records.
func During(rule Rule, times ...Span) Rule { return during{rule, times} }

type during struct {
	Rule

	times []Span
}

func (d during) Judge(r Record) []Verdict { return d.inside(d.Rule.Judge(r)) }
func (d during) End() []Verdict           { return d.inside(d.Rule.End()) }

func (d during) inside(verdicts []Verdict) []Verdict {
	return slices.DeleteFunc(verdicts, func(v Verdict) bool {
		return !slices.ContainsFunc(d.times, func(s Span) bool { return !v.At.Before(s.From) && !v.At.After(s.To) })
	})
}
