// SPDX-License-Identifier: Apache-2.0

// Package nodetaints answers one question: which taints is a Node to have, given
// what the spec wants, what the Node has, and what of that we applied? It knows
// nothing of Kubernetes: it neither reads a Node nor writes one.
//
// Key and effect tell one taint from another; the value may change. A taint is
// ours if the record on the Node names it with the value that it has. Ours may be
// changed and removed, and nobody else's ever is: one that is equal to what the
// spec wants is left and never becomes ours, one with another value is a conflict.
// The record is written together with the taints, so no crash comes in between.
package nodetaints

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Taint keeps pods that do not tolerate it off a Node. An absent value is empty:
// Kubernetes stores no difference.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// String is the taint as kubectl writes it.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// sameAs reports whether both are the same taint, whatever their values.
func (t Taint) sameAs(other Taint) bool { return t.Key == other.Key && t.Effect == other.Effect }

func compare(a, b Taint) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
}

// find returns the taint of the list that is the same as t.
func find(list []Taint, t Taint) (Taint, bool) {
	i := slices.IndexFunc(list, t.sameAs)
	if i < 0 {
		return Taint{}, false
	}
	return list[i], true
}

// reserved are the prefixes of keys that belong to Kubernetes, Cluster API and
// this project. Cluster API takes its own off whenever it looks at a Machine.
var reserved = []string{"5spot.finos.org/", "kubernetes.io/", "node.kubernetes.io/", "node-role.kubernetes.io/", "node.cluster.x-k8s.io/"}

// Reserved returns the reserved prefix of a key, empty if it has none. A taint
// with one is never applied.
func Reserved(key string) string {
	for _, prefix := range reserved {
		if strings.HasPrefix(key, prefix) {
			return prefix
		}
	}
	return ""
}

// A Plan is what a Node is to look like.
type Plan struct {
	// Taints are all taints of the Node: those of others as and where they are.
	Taints []Taint
	// Applied are those of them that are ours, sorted.
	Applied []Taint
}

// Make returns what a Node with the taints current, of which we applied those of
// applied, is to look like. Desired has no taint twice. The error is a
// *ConflictError: then nothing may be written.
func Make(desired, current, applied []Taint) (Plan, error) {
	if err := conflicts(desired, current, applied); err != nil {
		return Plan{}, err
	}
	var p Plan
	for _, have := range current {
		want, wanted := find(desired, have)
		switch {
		case !slices.Contains(applied, have):
			p.Taints = append(p.Taints, have)
		case wanted:
			p.add(want)
		}
	}
	for _, want := range desired {
		if _, there := find(current, want); !there {
			p.add(want)
		}
	}
	slices.SortFunc(p.Applied, compare)
	return p, nil
}

func (p *Plan) add(t Taint) {
	p.Taints = append(p.Taints, t)
	p.Applied = append(p.Applied, t)
}

// A Conflict is a taint of the spec that somebody else holds with another value.
type Conflict struct {
	// Wanted is the taint of the spec, and Held that of the Node.
	Wanted, Held Taint
	// Applied is what we applied before somebody changed its value, nil if it was
	// never ours.
	Applied *Taint
}

// String says who holds what.
func (c Conflict) String() string {
	who := "set by somebody else"
	if c.Applied != nil {
		who = "which somebody changed after 5-Spot had set " + c.Applied.String()
	}
	return fmt.Sprintf("spec.nodeTaints wants %s, the Node has %s, %s", c.Wanted, c.Held, who)
}

// A ConflictError says that nothing can be written without changing a taint of
// somebody else.
type ConflictError struct {
	// Conflicts are not empty, and in the order of the spec.
	Conflicts []Conflict
}

// Error names the first conflicts and the way out. It is for a condition: the same
// state gives the same text.
func (e *ConflictError) Error() string {
	const most = 3
	var words []string
	for _, c := range e.Conflicts[:min(most, len(e.Conflicts))] {
		words = append(words, c.String())
	}
	if more := len(e.Conflicts) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ") + ": remove the taint from the Node, or change spec.nodeTaints"
}

func conflicts(desired, current, applied []Taint) error {
	var found []Conflict
	for _, want := range desired {
		held, there := find(current, want)
		if !there || held == want || slices.Contains(applied, held) {
			continue
		}
		c := Conflict{Wanted: want, Held: held}
		if was, ok := find(applied, want); ok {
			c.Applied = &was
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		return nil
	}
	return &ConflictError{found}
}
