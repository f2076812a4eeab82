// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// lateAfter is how long a Node may be detached for a roll before the roll is reported as late.
const lateAfter = 10 * time.Minute

// Roll is the state of one DaemonSet whose outdated pods are replaced.
type Roll struct {
	// Revision is the current revision hash of the DaemonSet.
	Revision string
	// Nodes are all Nodes that run a pod of it, or have one replaced. Wanted is the desired number of Nodes with a pod.
	Nodes  []RollNode
	Wanted int
	// Now is the current time.
	Now time.Time
}

// RollNode is the state of one Node of a Roll.
type RollNode struct {
	// Node is the name of the Node.
	Node string
	// Detached means that the Node is detached for another reason. The roll skips it and does not wait for it.
	Detached bool
	// Replaces means that its pod is being replaced, since Since. RestorePending means that memberships must
	// still be restored after that.
	Replaces, RestorePending bool
	Since                    time.Time
	// Pods are the pods of the DaemonSet on the Node.
	Pods []Pod
}

// RollStep is the next step of a roll. The zero value means that all pods are up to date.
type RollStep struct {
	// Node and Pod identify the next pod. They are empty while the roll waits.
	Node, Pod string
	// Left is the number of Nodes with an outdated pod.
	Left int
	// Waits is what the roll waits for. Late means that a person should look at it. Until is when that will be so, zero
	// if it already is or never.
	Waits string
	Late  bool
	Until time.Time
}

// Next returns the next step. It selects the first Node, by name, with an outdated pod, once all Nodes have a Ready pod
// and no replacement is in progress.
func (r Roll) Next() (t RollStep) {
	nodes := slices.SortedFunc(slices.Values(r.Nodes), func(a, b RollNode) int { return cmp.Compare(a.Node, b.Node) })
	var old []RollNode
	for _, n := range nodes {
		if n.outdated(r.Revision) != "" {
			old = append(old, n)
		}
	}
	t.Left = len(old)
	if i := slices.IndexFunc(nodes, func(n RollNode) bool { return n.Replaces || n.RestorePending }); i >= 0 {
		t.Waits = nodes[i].waitReason(r.Revision)
		t.setDeadline(nodes[i], r.Now)
		return t
	}
	if t.Left == 0 {
		return t // No roll is left, so unready pods do not matter.
	}
	if t.Waits = r.nodeWithoutReadyPod(nodes); t.Waits != "" {
		t.Late = true
		return t
	}
	if i := slices.IndexFunc(old, func(n RollNode) bool { return !n.Detached }); i >= 0 {
		t.Node, t.Pod = old[i].Node, old[i].outdated(r.Revision)
		return t
	}
	t.Waits = fmt.Sprintf("Node %s is out for another reason", old[0].Node)
	return t
}

// nodeWithoutReadyPod returns a message if a Node has no Ready pod, or fewer Nodes than wanted have a pod. It is empty
// if all serve.
func (r Roll) nodeWithoutReadyPod(nodes []RollNode) string {
	have := 0
	for _, n := range nodes {
		if !n.Detached && !slices.ContainsFunc(n.Pods, Pod.serves) {
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

// outdated returns the UID of a pod of another revision, empty if there is none.
func (n RollNode) outdated(revision string) string {
	i := slices.IndexFunc(n.Pods, func(p Pod) bool { return p.Revision != revision && !p.Terminating })
	if i < 0 {
		return ""
	}
	return n.Pods[i].UID
}

// waitReason returns what a Node waits for.
func (n RollNode) waitReason(revision string) string {
	switch {
	case !n.Replaces:
		return fmt.Sprintf("Node %s is being restored", n.Node)
	case n.outdated(revision) != "":
		return fmt.Sprintf("Node %s is being detached", n.Node)
	default:
		return fmt.Sprintf("Node %s waits for a Ready pod", n.Node)
	}
}

// setDeadline sets Late if the Node has been detached for too long, or else Until.
func (t *RollStep) setDeadline(n RollNode, now time.Time) {
	if n.Since.IsZero() {
		return
	}
	if late := n.Since.Add(lateAfter); now.Before(late) {
		t.Until = late
	} else {
		t.Late = true
	}
}
