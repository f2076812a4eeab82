// SPDX-License-Identifier: Apache-2.0

// Package plan has three pure decisions. Decide returns whether a Node must be detached from its load balancers. Round
// returns which memberships are drained or restored now. Roll returns which pod of a DaemonSet is replaced next. The
// package uses neither Kubernetes nor a load balancer, and keeps no state.
package plan

import (
	"slices"
	"strings"
)

const (
	// AutoscalerTaint is the key of the taint that cluster-autoscaler sets on a Node before it deletes it. From
	// Kubernetes 1.31 on, kube-proxy's health check fails on such a Node (KEP-3836).
	AutoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	// OurTaintValue is the value of that taint if 5-Spot has set it. That taint does not detach a Node.
	OurTaintValue = "5spot"
)

// Trigger is the reason why a Node must be detached. The zero value means that it must be attached.
type Trigger string

const (
	// Emergency means that the machine leaves at once. It does not wait, and minMembers does not hold it.
	Emergency Trigger = "Emergency"
	// Departure means that the machine leaves.
	Departure Trigger = "Departure"
	// AnnotationTrigger means that an annotation of the Node requests it.
	AnnotationTrigger Trigger = "Annotation"
	// Cordoned means that another party has cordoned the Node.
	Cordoned Trigger = "Cordoned"
	// Gone means that the Node does not exist, and that memberships may be restored when it comes back.
	Gone Trigger = "NodeGone"
)

// Machine is the state of the machine of a Node.
type Machine int

const (
	// Stays means that the machine runs, or that the Node has no Machine.
	Stays Machine = iota
	// AwaitsDeparture means that the Machine is being deleted, and that no departure is recorded yet. The cache may lag
	// behind the record and behind the cordon that follows it.
	AwaitsDeparture
	// Leaves means that the machine has started to leave.
	Leaves
	// LeavesAtOnce means that the machine leaves without any wait.
	LeavesAtOnce
)

// Taint is a taint of a Node.
type Taint struct{ Key, Value string }

// Node is the observed state of a Node. The zero value means that it could not be read.
type Node struct {
	// Known means that a read succeeded. Exists means that the Node exists.
	Known, Exists bool
	// UID is the UID of the Node. ProviderID is the provider ID of its machine. Identity is all data by which load
	// balancers identify it. The Machine provides both also while the Node does not exist.
	UID, ProviderID, Identity string
	// Ready means that the Node is Ready, and that it is not being deleted.
	Ready bool
	// Unschedulable means that the Node is cordoned. CordonedByUs means that 5-Spot did it.
	Unschedulable, CordonedByUs bool
	// Taints are the taints of the Node.
	Taints []Taint
	// DetachAnnotation is the value of the annotation that requests a detach.
	DetachAnnotation string
	// Marked means that the Node has the annotation that reports it as detaching.
	Marked bool
	// Stopped means that 5-Spot has stopped its pods in order, and keeps new ones away.
	Stopped bool
	// Owned means that a Machine refers to the Node, also while the Node does not exist. Machine is the state of that
	// Machine.
	Owned   bool
	Machine Machine
	// DaemonSets are the DaemonSets that load balancers name, with their pods on the Node.
	DaemonSets []DaemonSet
}

// Trigger returns the first reason for which the Node must leave all load balancers. keys are the patterns of
// additional taint keys.
func (n Node) Trigger(keys []string) Trigger {
	switch {
	case n.Machine == LeavesAtOnce:
		return Emergency
	case n.Machine == Leaves:
		return Departure
	case n.DetachAnnotation == "true":
		return AnnotationTrigger
	default:
		return n.drainTrigger(keys)
	}
}

// StopsPods reports whether the pods of the Node are stopped in order: its machine leaves, or another party is about to
// drain or delete the Node. The detach annotation changes neither.
func (n Node) StopsPods(keys []string) bool {
	return n.Machine == Leaves || n.Machine != LeavesAtOnce && n.drainTrigger(keys) != ""
}

// drainTrigger returns the sign that another party is about to drain or delete the Node.
func (n Node) drainTrigger(keys []string) Trigger {
	for _, t := range n.Taints {
		if t.Key == AutoscalerTaint && t.Value != OurTaintValue || slices.ContainsFunc(keys, func(key string) bool { return matches(key, t.Key) }) {
			return Trigger("Taint " + t.Key)
		}
	}
	if n.Unschedulable && !n.CordonedByUs {
		return Cordoned
	}
	return ""
}

// matches reports whether the pattern matches the key. A pattern may end with *.
func matches(pattern, key string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == key || open && strings.HasPrefix(key, prefix)
}

// Record is the decision that the NodeAttachment records. The zero value means that there is no record.
type Record struct {
	// Exists means that there is a record.
	Exists bool
	// UID is the UID of the recorded Node. ProviderID is the provider ID of its machine. Identity is the data by which
	// load balancers identified it.
	UID, ProviderID, Identity string
	// Trigger is why the Node is detached.
	Trigger Trigger
	// LoadBalancers are the load balancers to which Trigger applies. Empty means all.
	LoadBalancers []string
	// Replaces are the pods of DaemonSets that were being replaced.
	Replaces []Replacement
	// Memberships is the number of drained memberships. Permanent is how many of them are restored when the Node comes
	// back.
	Memberships, Permanent int
	// Unconfirmed means that at least one load balancer has not confirmed the detach.
	Unconfirmed bool
}

// Decision is what the reconciler does about a Node. The zero value means nothing.
type Decision struct {
	// Cordon and Uncordon change the Node's spec.unschedulable.
	Cordon, Uncordon bool
	// Resume removes the taint that keeps stopped pods away from the Node, and the record of these pods.
	Resume bool
	// Mark and Unmark set the Node's annotation to true or false.
	Mark, Unmark bool
	// Write means that the Record is written with Trigger, LoadBalancers, Replaces, and the UID of the Node if it
	// exists.
	Write         bool
	Trigger       Trigger
	LoadBalancers []string
	Replaces      []Replacement
	// Forget means that memberships that are not permanent are removed from the record.
	Forget bool
	// Delete means that the record is deleted, because nothing is left to restore.
	Delete bool
}

// Decide returns what to do about a Node. balanced means that its Cluster has a load balancer that is not being
// deleted. keys are the patterns of additional taint keys.
func Decide(n Node, r Record, balanced bool, keys []string) Decision {
	switch {
	case n.Machine == LeavesAtOnce && !n.Exists && n.Identity != "" && (r.Exists || balanced):
		return Decision{Write: r.Trigger != Emergency, Trigger: Emergency}
	case !n.Known:
		return Decision{}
	case !n.Exists:
		return decideAbsent(n, r, balanced)
	}
	trigger := n.Trigger(keys)
	d := Decision{Trigger: trigger, Replaces: n.replacements(r, trigger == "")}
	d.Resume = n.Stopped && n.Machine != LeavesAtOnce && !n.StopsPods(keys)
	switch {
	case trigger != "" && (balanced || r.Memberships > 0):
		return detach(n, r, d)
	case trigger != "":
		return Decision{Unmark: r.Exists && n.Marked, Delete: r.Exists, Resume: d.Resume}
	case len(d.Replaces) > 0:
		return detachPartly(n, r, d)
	case r.Exists && (r.Trigger != "" || r.UID != n.UID) && !n.Ready:
		return Decision{} // It is not Ready, so it gets no connections.
	default:
		return attach(n, r, d)
	}
}

// decideAbsent decides for a Node that does not exist. While it has a Machine, its kubelet may create it again. The
// record keeps the trigger Gone, so that waiting departures continue.
func decideAbsent(n Node, r Record, balanced bool) Decision {
	gone := Decision{Write: r.Trigger != Gone, Trigger: Gone}
	switch {
	case r.Unconfirmed && (r.Trigger == Emergency || r.Trigger == Departure):
		return Decision{Trigger: r.Trigger} // The load balancer may still send connections to the machine.
	case n.Owned && (r.Exists && (balanced || r.Memberships > 0) || balanced && n.Machine == Leaves):
		return gone
	case !r.Exists:
		return Decision{}
	case r.Permanent == 0:
		return Decision{Delete: true}
	default:
		gone.Forget = r.Memberships > r.Permanent
		gone.Write = gone.Write || gone.Forget
		return gone
	}
}

// ofOtherMachine reports whether the recorded Node was another machine with the same name. The memberships of that
// machine must not be restored for this Node.
func (r Record) ofOtherMachine(n Node) bool {
	return r.Exists && r.UID != n.UID && r.ProviderID != n.ProviderID && r.Memberships > r.Permanent
}

// detach completes the decision d for a Node that must be detached. It cordons and marks the Node only once, before the
// record is written, so that a person can undo both.
func detach(n Node, r Record, d Decision) Decision {
	news := r.isNew(n, d.Trigger)
	d.Mark = news && !n.Marked && d.Trigger != Emergency
	d.Cordon = news && d.Trigger == Departure && !n.Unschedulable
	d.Write, d.Forget = r.changes(n, d), r.ofOtherMachine(n)
	return d
}

// detachPartly completes the decision d for a Node that must leave only the load balancers of the DaemonSets whose pods
// are replaced. Other pods are not affected.
func detachPartly(n Node, r Record, d Decision) Decision {
	d.Uncordon, d.Unmark = n.uncordons(), n.Marked
	d.Trigger, d.LoadBalancers = n.triggerOf(d.Replaces)
	d.Write, d.Forget = r.changes(n, d), r.ofOtherMachine(n)
	return d
}

// isNew reports whether the trigger, or the Node, is new to the record.
func (r Record) isNew(n Node, trigger Trigger) bool {
	return !r.Exists || r.Trigger != trigger || r.UID != n.UID
}

// changes reports whether the record must be written.
func (r Record) changes(n Node, d Decision) bool {
	return r.isNew(n, d.Trigger) || r.Identity != n.Identity || !slices.Equal(r.LoadBalancers, d.LoadBalancers) || !slices.Equal(r.Replaces, d.Replaces)
}

// attach completes the decision d for a Node that must be attached.
func attach(n Node, r Record, d Decision) Decision {
	if d.Uncordon = n.uncordons(); !r.Exists {
		return d // Another party has marked it.
	}
	d.Unmark = n.Marked
	d.Write, d.Forget = r.Trigger != "" || r.UID != n.UID, r.ofOtherMachine(n)
	d.Delete = !d.Write && r.Memberships == 0
	return d
}

// uncordons reports whether our cordon is removed. A Machine that is being deleted never returns.
func (n Node) uncordons() bool { return n.CordonedByUs && n.Machine == Stays }
