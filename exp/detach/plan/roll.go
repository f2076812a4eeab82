// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// patience is how long a Node may be out for a roll before people are told.
const patience = 10 * time.Minute

// A Roll is everything that decides which pod of a DaemonSet is deleted next.
type Roll struct {
	// Revision is that of the DaemonSet now.
	Revision string
	// Nodes are all with a pod of it, and those that have one replaced, and Wanted is how many
	// are to have one.
	Nodes  []Stop
	Wanted int
	// Now is the time.
	Now time.Time
}

// A Stop is one Node of a Roll.
type Stop struct {
	// Node is its name.
	Node string
	// Away says that it is to be out for another reason: it is not rolled, and nobody waits for
	// it.
	Away bool
	// Replaces says that its pod is being replaced, since Since, and Owed that it has not got all
	// of its places back after that.
	Replaces, Owed bool
	Since          time.Time
	// Pods are those of the DaemonSet on it.
	Pods []Pod
}

// A Turn is what is next. The zero value is nothing: all pods are up to date.
type Turn struct {
	// Node and Pod are whose pod is next, empty while somebody is waited for.
	Node, Pod string
	// Left is how many Nodes have an outdated pod.
	Left int
	// Waits says what is waited for, Late that people are to look at it, and Until when it is.
	Waits string
	Late  bool
	Until time.Time
}

// Next says whose turn it is: the first Node, by name, with an outdated pod, when the pods of all
// serve and nobody is out.
func (r Roll) Next() (t Turn) {
	nodes := slices.SortedFunc(slices.Values(r.Nodes), func(a, b Stop) int { return cmp.Compare(a.Node, b.Node) })
	var old []Stop
	for _, n := range nodes {
		if n.outdated(r.Revision) != "" {
			old = append(old, n)
		}
	}
	t.Left = len(old)
	if i := slices.IndexFunc(nodes, func(n Stop) bool { return n.Replaces || n.Owed }); i >= 0 {
		t.Waits = nodes[i].says(r.Revision)
		t.judge(nodes[i], r.Now)
		return t
	}
	if t.Left == 0 {
		return t // Whose pod is not Ready is not asked.
	}
	if t.Waits = r.dark(nodes); t.Waits != "" {
		t.Late = true
		return t
	}
	if i := slices.IndexFunc(old, func(n Stop) bool { return !n.Away }); i >= 0 {
		t.Node, t.Pod = old[i].Node, old[i].outdated(r.Revision)
		return t
	}
	t.Waits = fmt.Sprintf("Node %s is out for another reason", old[0].Node)
	return t
}

// dark is which Node serves nobody, empty if all do.
func (r Roll) dark(nodes []Stop) string {
	have := 0
	for _, n := range nodes {
		if !n.Away && !slices.ContainsFunc(n.Pods, Pod.serves) {
			return fmt.Sprintf("Node %s has no Ready pod", n.Node)
		}
		if len(n.Pods) > 0 {
			have++
		}
	}
	if have < r.Wanted {
		return "a Node has no pod"
	}
	return ""
}

// outdated is the UID of a pod of another revision, empty if there is none.
func (n Stop) outdated(revision string) string {
	i := slices.IndexFunc(n.Pods, func(p Pod) bool { return p.Revision != revision && !p.Ends })
	if i < 0 {
		return ""
	}
	return n.Pods[i].UID
}

// says is what a Node waits for.
func (n Stop) says(revision string) string {
	switch {
	case !n.Replaces:
		return fmt.Sprintf("Node %s is being put back", n.Node)
	case n.outdated(revision) != "":
		return fmt.Sprintf("Node %s is being taken out", n.Node)
	default:
		return fmt.Sprintf("Node %s waits for a Ready pod", n.Node)
	}
}

// judge says whether people are to look at a Node, or when.
func (t *Turn) judge(n Stop, now time.Time) {
	if n.Since.IsZero() {
		return
	}
	if late := n.Since.Add(patience); now.Before(late) {
		t.Until = late
	} else {
		t.Late = true
	}
}
