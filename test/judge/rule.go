// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// A Rule is one promise. It is for one Run, and not safe for concurrent use.
type Rule interface {
	// Name is one word.
	Name() string
	// Question states the promise as a question, in one sentence.
	Question() string
	// Judge is called with every record, in the order of their start. It returns a verdict for each case that the
	// record decides.
	Judge(r Record) []Verdict
	// End is called once, after the last record. It returns the verdicts that only the end decides.
	End() []Verdict
}

// A Verdict reports whether a rule was kept in one case.
type Verdict struct {
	// Rule is the rule's name. Run sets it.
	Rule string
	// Object and At are the object and the instant of the case.
	Object Object
	At     time.Time
	// IDs are the auditIDs or action_ids of the evidence.
	IDs []string
	// Broken describes the break, empty if the rule was kept.
	Broken string
	// Should describes the correct behaviour.
	Should string
}

// String formats a break for people.
func (v Verdict) String() string {
	return fmt.Sprintf("%s: %s at %s: %s; %s (%s)",
		v.Rule, v.Object, v.At.UTC().Format(time.RFC3339Nano), v.Broken, v.Should, strings.Join(v.IDs, ", "))
}

// A Ruling is the result of a Run.
type Ruling struct {
	// Records is the number of records. Judged is the number of cases by rule name. A rule without cases has shown
	// nothing.
	Records int
	Judged  map[string]int
	// Breaks are the cases in which a rule was broken.
	Breaks []Verdict
}

// Run judges records by rules. It ends at the first record that cannot be read.
func Run(records iter.Seq2[Record, error], rules ...Rule) (*Ruling, error) {
	ruling := &Ruling{Judged: map[string]int{}}
	for r, err := range records {
		if err != nil {
			return ruling, err
		}
		ruling.Records++
		for _, rule := range rules {
			ruling.add(rule, rule.Judge(r))
		}
	}
	for _, rule := range rules {
		ruling.add(rule, rule.End())
	}
	return ruling, nil
}

func (r *Ruling) add(rule Rule, verdicts []Verdict) {
	r.Judged[rule.Name()] += len(verdicts)
	for _, v := range verdicts {
		if v.Broken != "" {
			v.Rule = rule.Name()
			r.Breaks = append(r.Breaks, v)
		}
	}
}

// kept is the verdict on a request that kept a rule.
func kept(r Record) []Verdict { return broken(r, "", "") }

// broken is the verdict on a request that broke a rule.
func broken(r Record, what, should string) []Verdict {
	return []Verdict{{Object: r.Object, At: r.At, IDs: []string{r.ID}, Broken: what, Should: should}}
}

// unread is the verdict on a request without its body, which a rule needs.
func unread(r Record) []Verdict {
	return broken(r, "the log has no body of this request", "the audit policy should keep bodies of "+r.Object.Resource)
}

// Default returns the rules without parameters.
func Default() []Rule { return []Rule{Steps(), Emergency(), Agent(), Precondition()} }

// Print writes each break, and for each rule the numbers of cases and breaks.
func (r *Ruling) Print(out io.Writer, rules []Rule) error {
	broken := map[string]int{}
	var text strings.Builder
	for _, v := range r.Breaks {
		broken[v.Rule]++
		fmt.Fprintf(&text, "BROKEN %s\n", v)
	}
	fmt.Fprintf(&text, "%d requests and lines\n", r.Records)
	for _, rule := range rules {
		fmt.Fprintf(&text, "%-13s judged %6d, broken %4d: %s\n", rule.Name(), r.Judged[rule.Name()], broken[rule.Name()], rule.Question())
	}
	_, err := io.WriteString(out, text.String())
	return err
}
