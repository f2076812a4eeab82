// SPDX-License-Identifier: Apache-2.0

package nodetaints

import (
	"fmt"
	"slices"
)

// A Node has the parts of a Node that a decision depends on.
type Node struct {
	// Ready is the status of the Node's condition Ready.
	Ready  bool
	Taints []Taint
	// Record is the Node's annotation with the taints that 5-Spot applied, nil if there is none.
	Record *string
}

// Facts is the state that a decision depends on.
type Facts struct {
	// Desired are the taints of the spec. No two have the same key and effect.
	Desired []Taint
	// Node is nil if there is none.
	Node *Node
	// Unseen reports that the workload cluster is not connected. It is then unknown whether there is a Node.
	Unseen bool
	// Leaving reports that the machine is being removed. Its Node does not change then.
	Leaving bool
}

// Outcome is the kind of a Decision.
type Outcome string

const (
	// Nothing means that no taints are desired and none are applied.
	Nothing Outcome = "Nothing"
	// NoNode means that taints are desired, but there is no Node.
	NoNode Outcome = "NoNode"
	// Unseen means that the Node cannot be read now.
	Unseen Outcome = "Unseen"
	// Leaving means that the Node does not change, because the machine is being removed.
	Leaving Outcome = "Leaving"
	// NotReady means that the Node is not Ready. Its taints are changed when it is.
	NotReady Outcome = "NotReady"
	// Write means that the Plan has to be written.
	Write Outcome = "Write"
	// Settled means that the Node has the desired taints.
	Settled Outcome = "Settled"
	// Conflicted means that nothing is written, because another writer holds a desired taint with another value.
	Conflicted Outcome = "Conflicted"
	// Unreadable means that nothing is written, because the record is invalid: it is unknown which taints 5-Spot
	// applied.
	Unreadable Outcome = "Unreadable"
)

// Decision is the result of Decide.
type Decision struct {
	Outcome Outcome
	// Plan is the state to write, if the Outcome is Write.
	Plan Plan
	// Applied are the taints that 5-Spot holds on the Node after the decision is carried out, sorted. They are unknown
	// if the Outcome is Unseen, Leaving or Unreadable.
	Applied []Taint
	// Err is the cause of Conflicted and Unreadable, else nil.
	Err error
}

// Decide returns the decision about the taints of a Node.
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

// held returns the taints of the record that are still on the Node.
func held(record, current []Taint) []Taint {
	return slices.DeleteFunc(slices.Clone(record), func(t Taint) bool { return !slices.Contains(current, t) })
}

// UnreadableMessage describes an invalid record in the annotation key, and how to correct it.
func UnreadableMessage(key string, err error) string {
	return fmt.Sprintf("annotation %s of the Node cannot be read, so 5-Spot does not know which taints it applied: %v; "+
		"correct it, or remove it if none of the taints is 5-Spot's", key, err)
}
