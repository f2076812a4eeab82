// SPDX-License-Identifier: Apache-2.0

// Package nodetaints computes the taints of a Node. It uses the taints of the spec, the taints of the Node, and the
// record of the taints that 5-Spot applied. It has no Kubernetes types, and neither reads nor writes Nodes.
//
// Key and effect identify a taint; its value may change. 5-Spot owns a taint if the record on the Node has it with its
// current value. 5-Spot changes and removes only taints that it owns. It never takes over a taint of another writer: an
// equal one satisfies the spec, and one with another value is a conflict. One patch writes taints and record together,
// so that a crash cannot separate them.
package nodetaints

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Taint keeps pods without a matching toleration off a Node. Value is empty if it is absent; Kubernetes does not
// distinguish the two.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// String returns the taint in kubectl's notation.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// sameAs reports whether both have the same key and effect.
func (t Taint) sameAs(other Taint) bool { return t.Key == other.Key && t.Effect == other.Effect }

func compare(a, b Taint) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
}

// find returns the taint of the list with the key and effect of t.
func find(list []Taint, t Taint) (Taint, bool) {
	i := slices.IndexFunc(list, t.sameAs)
	if i < 0 {
		return Taint{}, false
	}
	return list[i], true
}

// reserved are the prefixes of keys that belong to Kubernetes, Cluster API and this project. Cluster API removes its
// own taints whenever it reconciles a Machine.
var reserved = []string{"5spot.finos.org/", "kubernetes.io/", "node.kubernetes.io/", "node-role.kubernetes.io/", "node.cluster.x-k8s.io/"}

// Reserved returns the reserved prefix of a key, empty if it has none. 5-Spot never applies a taint with a reserved
// key.
func Reserved(key string) string {
	for _, prefix := range reserved {
		if strings.HasPrefix(key, prefix) {
			return prefix
		}
	}
	return ""
}

// A Plan is the desired state of a Node.
type Plan struct {
	// Taints are all taints of the Node. Taints of other writers have their values and order.
	Taints []Taint
	// Applied are the taints that 5-Spot owns, sorted.
	Applied []Taint
}

// Make returns the Plan for a Node. current are its taints, and applied the record of 5-Spot's taints. In desired, no
// two taints have the same key and effect. With an error nothing may be written: a write would change a taint of another
// writer.
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

// conflicts returns an error if a taint of the spec is on the Node with another value, set by another writer. It
// describes the first conflicts, and how to resolve them. The same state gives the same text, for use in a condition.
func conflicts(desired, current, applied []Taint) error {
	const most = 3
	var words []string
	for _, want := range desired {
		held, there := find(current, want)
		if !there || held == want || slices.Contains(applied, held) {
			continue
		}
		who := "set by another manager"
		if was, ok := find(applied, want); ok {
			who = "which was changed after 5-Spot had set " + was.String()
		}
		words = append(words, fmt.Sprintf("spec.nodeTaints wants %s, the Node has %s, %s", want, held, who))
	}
	if len(words) == 0 {
		return nil
	}
	if more := len(words) - most; more > 0 {
		words = append(words[:most], fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(words, "; ") + ": remove the taint from the Node, or change spec.nodeTaints")
}
