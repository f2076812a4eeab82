// SPDX-License-Identifier: Apache-2.0

package nodetaints

import (
	"fmt"
	"slices"
)

// A Node is what matters of a Node.
type Node struct {
	// Ready is the Node's own word.
	Ready bool
	// Taints are all of its taints.
	Taints []Taint
	// Record is what we wrote down of the taints that we applied, nil if nothing.
	Record *string
}

// Facts are everything that a decision depends on.
type Facts struct {
	// Desired are the taints of the spec, none of them twice.
	Desired []Taint
	// Node is nil if there is none.
	Node *Node
	// Unseen says that there may be a Node, in a workload cluster that is not
	// connected. Unknown is not absent.
	Unseen bool
	// Leaving says that the machine is on its way out: its Node is left as it is.
	Leaving bool
}

// Outcome is what becomes of the taints.
type Outcome string

const (
	// Nothing is to be applied, and nothing is applied.
	Nothing Outcome = "Nothing"
	// NoNode is there to have taints.
	NoNode Outcome = "NoNode"
	// Unseen is a Node that cannot be seen now.
	Unseen Outcome = "Unseen"
	// Leaving is a machine whose Node is left as it is.
	Leaving Outcome = "Leaving"
	// NotReady is a Node that will be changed when it is ready.
	NotReady Outcome = "NotReady"
	// Write is a Node that has to be written as planned.
	Write Outcome = "Write"
	// Settled is a Node that is as the spec wants it.
	Settled Outcome = "Settled"
	// Conflicted is a Node that is not written, because a taint is somebody else's.
	Conflicted Outcome = "Conflicted"
	// Unreadable is a Node that is not written, because it cannot be told which of
	// its taints are ours.
	Unreadable Outcome = "Unreadable"
)

// Decision says what to do.
type Decision struct {
	Outcome Outcome
	// Plan is what to write, if the outcome is Write.
	Plan Plan
	// Applied are the taints of the Node that are ours once the decision is carried
	// out, sorted. They are not known if the outcome is Unseen, Leaving or Unreadable.
	Applied []Taint
	// Err says what stands in the way of Conflicted and Unreadable.
	Err error
}

// Decide says what becomes of the taints of a Node.
func Decide(f Facts) Decision {
	switch {
	case f.Unseen:
		return Decision{Outcome: Unseen}
	case f.Node == nil && len(f.Desired) == 0:
		return Decision{Outcome: Nothing}
	case f.Node == nil:
		return Decision{Outcome: NoNode}
	case f.Leaving:
		return Decision{Outcome: Leaving}
	case f.Node.Record == nil && len(f.Desired) == 0:
		return Decision{Outcome: Nothing}
	default:
		return decideNode(f.Desired, f.Node)
	}
}

func decideNode(desired []Taint, node *Node) Decision {
	var record []Taint
	if node.Record != nil {
		var err error
		if record, err = Parse(*node.Record); err != nil {
			return Decision{Outcome: Unreadable, Err: err}
		}
	}
	d := Decision{Outcome: Settled, Applied: held(record, node.Taints)}
	if !node.Ready {
		d.Outcome = NotReady
		return d
	}
	plan, err := Make(desired, node.Taints, record)
	switch {
	case err != nil:
		d.Outcome, d.Err = Conflicted, err
	case !slices.Equal(plan.Taints, node.Taints), !slices.Equal(plan.Applied, record), len(desired) == 0:
		d.Outcome, d.Plan, d.Applied = Write, plan, plan.Applied
	}
	return d
}

// held are the taints of the record that the Node has.
func held(record, current []Taint) []Taint {
	return slices.DeleteFunc(slices.Clone(record), func(t Taint) bool { return !slices.Contains(current, t) })
}

// UnreadableMessage says what is wrong with the record under a key, and the way
// out.
func UnreadableMessage(key string, err error) string {
	return fmt.Sprintf("annotation %s of the Node cannot be read, so 5-Spot does not know which taints it applied: %v; "+
		"correct it, or remove it if none of the taints is 5-Spot's", key, err)
}
