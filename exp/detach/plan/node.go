// SPDX-License-Identifier: Apache-2.0

// Package plan answers two questions: is a Node to be out of its load balancers, and which
// of its places are taken or given back now? It knows neither Kubernetes nor any load
// balancer, and remembers nothing.
package plan

import (
	"slices"
	"strings"
)

const (
	// AutoscalerTaint is the key of the taint of a Node that the cluster autoscaler is about
	// to delete. From Kubernetes 1.31 on, kube-proxy's health check fails on such a Node
	// (KEP-3836).
	AutoscalerTaint = "ToBeDeletedByClusterAutoscaler"
	// OurTaintValue is the value of that taint where 5-Spot has set it. It takes no Node out.
	OurTaintValue = "5spot"
)

// A Trigger is why a Node is to be out. The zero value is that it is to be in.
type Trigger string

const (
	// Emergency means that the machine goes at once: nobody waits, and no pool is kept full.
	Emergency Trigger = "Emergency"
	// Departure means that the machine leaves.
	Departure Trigger = "Departure"
	// Asked means that an annotation of the Node asks for it.
	Asked Trigger = "Annotation"
	// Cordoned means that somebody else has cordoned the Node.
	Cordoned Trigger = "Cordoned"
	// Gone means that there is no such Node now, and places that wait for it.
	Gone Trigger = "NodeGone"
)

// tainted is the Trigger of a taint.
func tainted(key string) Trigger { return Trigger(taint + key) }

const taint = "Taint "

// StopsPods reports whether the pods of the Node are stopped in order: its machine leaves, or somebody
// else is about to drain or delete the Node.
func (t Trigger) StopsPods() bool {
	return t == Departure || t == Cordoned || strings.HasPrefix(string(t), taint)
}

// A Machine is what becomes of a Node's machine.
type Machine int

const (
	// Stays means that it runs, waits for its turn to leave, or that there is none.
	Stays Machine = iota
	// Leaves means that it has started to leave.
	Leaves
	// LeavesAtOnce means that it waits for nobody.
	LeavesAtOnce
)

// A Taint is one of a Node.
type Taint struct{ Key, Value string }

// A Node is what is known of a Node. The zero value is one that could not be read.
type Node struct {
	// Known says that it could be read whether there is such a Node, and Exists that there is.
	Known, Exists bool
	// UID is that of the Node, ProviderID that of its machine, and Identity all by which load
	// balancers know it, as its Machine tells also while there is no such Node.
	UID, ProviderID, Identity string
	// Ready says that its kubelet runs, and that nobody deletes the Node.
	Ready bool
	// Unschedulable says that it is cordoned, and CordonedByUs that we did it.
	Unschedulable, CordonedByUs bool
	// Taints are those of the Node.
	Taints []Taint
	// Asks is the value of the annotation that asks to take it out.
	Asks string
	// Marked says that the Node says of itself that it is out.
	Marked bool
	// Stopped says that we have stopped its pods in order, and that they stay away.
	Stopped bool
	// Owned says that it has a Machine, also while there is no such Node, and Machine what
	// becomes of that.
	Owned   bool
	Machine Machine
	// DaemonSets are those that load balancers name, as they are on the Node.
	DaemonSets []DaemonSet
}

// Trigger is the first reason for which the Node is to be out of all load balancers. keys are
// those of further taints that mean so.
func (n Node) Trigger(keys []string) Trigger {
	switch {
	case n.Machine == LeavesAtOnce:
		return Emergency
	case n.Machine == Leaves:
		return Departure
	case n.Asks == "true":
		return Asked
	}
	for _, t := range n.Taints {
		if t.Key == AutoscalerTaint && t.Value != OurTaintValue || slices.ContainsFunc(keys, func(key string) bool { return matches(key, t.Key) }) {
			return tainted(t.Key)
		}
	}
	if n.Unschedulable && !n.CordonedByUs {
		return Cordoned
	}
	return ""
}

// matches reports whether a key is meant by a pattern, which may end with *.
func matches(pattern, key string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == key || open && strings.HasPrefix(key, prefix)
}

// A Record is what was written about a Node before. The zero value is none.
type Record struct {
	// Exists says that there is one.
	Exists bool
	// UID is that of the Node that it is about, ProviderID that of its machine, and Identity how
	// load balancers knew it.
	UID, ProviderID, Identity string
	// Trigger is why the Node is out.
	Trigger Trigger
	// LoadBalancers are those that Trigger is about; none means all.
	LoadBalancers []string
	// Replaces are the pods of DaemonSets that were being replaced.
	Replaces []Replacement
	// Places is how many places were taken, and Lasting how many of those wait for the Node
	// to come back.
	Places, Lasting int
	// Open says that a load balancer has not confirmed yet that the Node is out.
	Open bool
}

// A Decision is what is to be done about a Node. The zero value is nothing.
type Decision struct {
	// Cordon and Uncordon say what to do with the Node.
	Cordon, Uncordon bool
	// Resume lets pods come to the Node again that were stopped.
	Resume bool
	// Mark and Unmark have the Node say whether it is out.
	Mark, Unmark bool
	// Write says that the Record is written, with Trigger, LoadBalancers, Replaces and the UID
	// of the Node, if there is one.
	Write         bool
	Trigger       Trigger
	LoadBalancers []string
	Replaces      []Replacement
	// Forget says that the places that do not last are gone.
	Forget bool
	// Delete says that nothing is left to be given back.
	Delete bool
}

// Decide says what to do about a Node. balanced says that there is a load balancer that it
// may be a member of.
func Decide(n Node, r Record, balanced bool, keys []string) Decision {
	switch {
	case n.Machine == LeavesAtOnce && !n.Exists && n.Identity != "" && (r.Exists || balanced):
		return Decision{Write: r.Trigger != Emergency, Trigger: Emergency}
	case !n.Known:
		return Decision{}
	case !n.Exists:
		return absent(n, r, balanced)
	}
	trigger := n.Trigger(keys)
	replaces := n.replacements(r, trigger == "")
	switch {
	case trigger != "" && (balanced || r.Places > 0):
		return out(n, r, trigger, replaces)
	case trigger != "":
		return Decision{Unmark: r.Exists && n.Marked, Delete: r.Exists}
	case len(replaces) > 0:
		return partlyOut(n, r, replaces)
	case r.Exists && (r.Trigger != "" || r.UID != n.UID) && !n.Ready:
		return Decision{} // It takes no connections yet, or any more.
	default:
		return in(n, r)
	}
}

// absent is for a Node that is not there. As long as it has a Machine, its kubelet may make it
// anew, and who waits for it is told that it is gone.
func absent(n Node, r Record, balanced bool) Decision {
	gone := Decision{Write: r.Trigger != Gone, Trigger: Gone}
	switch {
	case r.Open && (r.Trigger == Emergency || r.Trigger == Departure):
		return Decision{Trigger: r.Trigger} // The load balancer may send connections to the machine yet.
	case n.Owned && (r.Exists && (balanced || r.Places > 0) || balanced && n.Machine == Leaves):
		return gone
	case !r.Exists:
		return Decision{}
	case r.Lasting == 0:
		return Decision{Delete: true}
	default:
		gone.Forget = r.Places > r.Lasting
		gone.Write = gone.Write || gone.Forget
		return gone
	}
}

// other reports whether the Node has the name alone in common with the one on record: the places
// of an instance that is gone are not its.
func (r Record) other(n Node) bool {
	return r.Exists && r.UID != n.UID && r.ProviderID != n.ProviderID && r.Places > r.Lasting
}

// out is for a Node that is to be out. It is cordoned and marked once, before the record says
// so: a person may take that back.
func out(n Node, r Record, trigger Trigger, replaces []Replacement) Decision {
	news := r.tells(n, trigger)
	d := Decision{Trigger: trigger, Replaces: replaces, Mark: news && !n.Marked && trigger != Emergency}
	d.Cordon = news && trigger == Departure && !n.Unschedulable
	d.Write, d.Forget = r.changes(n, d), r.other(n)
	return d
}

// partlyOut is for a Node that is to be out only where DaemonSets serve that replace their pods:
// its pods come and stay as on any other.
func partlyOut(n Node, r Record, replaces []Replacement) Decision {
	d := undone(n)
	d.Replaces = replaces
	d.Trigger, d.LoadBalancers = n.triggerOf(replaces)
	d.Write, d.Forget = r.changes(n, d), r.other(n)
	return d
}

// tells reports whether it is new that the Node is out for this.
func (r Record) tells(n Node, trigger Trigger) bool {
	return !r.Exists || r.Trigger != trigger || r.UID != n.UID
}

// changes reports whether the record says something else.
func (r Record) changes(n Node, d Decision) bool {
	return r.tells(n, d.Trigger) || r.Identity != n.Identity || !slices.Equal(r.LoadBalancers, d.LoadBalancers) || !slices.Equal(r.Replaces, d.Replaces)
}

// in is for a Node that is to be in.
func in(n Node, r Record) Decision {
	d := undone(n)
	if !r.Exists {
		d.Unmark = false // Somebody else has marked it.
		return d
	}
	d.Write, d.Forget = r.Trigger != "" || r.UID != n.UID, r.other(n)
	d.Delete = !d.Write && r.Places == 0
	return d
}

// undone gives back what was taken from the Node itself.
func undone(n Node) Decision {
	return Decision{Uncordon: n.CordonedByUs, Unmark: n.Marked, Resume: n.Stopped && n.Machine == Stays}
}
