// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
)

// A Rule is one promise. It is used for one Run, and by one goroutine.
type Rule interface {
	// Name is one word.
	Name() string
	// Question is what it asks, in one sentence.
	Question() string
	// Judge is called for every record, in the order in which they began, and returns a
	// verdict for each case that the record decides.
	Judge(r Record) []Verdict
	// End is called once, after the last record, and returns what only the end decides.
	End() []Verdict
}

// A Verdict says of one case whether a rule was kept.
type Verdict struct {
	// Rule is the rule's name. Whoever runs the rule fills it in.
	Rule string
	// Object and At are what it is about, and the instant.
	Object Object
	At     time.Time
	// IDs are the auditIDs, or action_ids, that it follows from.
	IDs []string
	// Broken is what happened, empty if the rule was kept.
	Broken string
	// Should is what should have been.
	Should string
}

// String is a break for people.
func (v Verdict) String() string {
	return fmt.Sprintf("%s: %s at %s: %s; %s (%s)",
		v.Rule, v.Object, v.At.UTC().Format(time.RFC3339Nano), v.Broken, v.Should, strings.Join(v.IDs, ", "))
}

// A Ruling is what a judge has to say.
type Ruling struct {
	// Records is how many there were, Judged in how many cases each rule, by its name, had
	// something to say. A rule with none has shown nothing.
	Records int
	Judged  map[string]int
	// Breaks are the cases in which a rule was not kept.
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

// broken is the verdict on a request that did not.
func broken(r Record, what, should string) []Verdict {
	return []Verdict{{Object: r.Object, At: r.At, IDs: []string{r.ID}, Broken: what, Should: should}}
}

// unread is the verdict on a request whose body is needed and not in the log.
func unread(r Record) []Verdict {
	return broken(r, "the log has no body of this request", "the audit policy should keep bodies of "+r.Object.Resource)
}

// Default are the rules that need to be told nothing.
func Default() []Rule { return []Rule{Steps(), Emergency(), Agent(), Precondition()} }

// Print writes each break, and for each rule how often it was judged and broken.
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
