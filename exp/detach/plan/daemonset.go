// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// A Pod is one of a DaemonSet.
type Pod struct {
	// UID is that of the pod, and Revision that of the DaemonSet which it was made of.
	UID, Revision string
	// Ends says that it terminates, and Ready that it takes connections.
	Ends, Ready bool
}

// serves reports whether connections may go to the pod.
func (p Pod) serves() bool { return p.Ready && !p.Ends }

// A DaemonSet is one that load balancers name, as it is on one Node.
type DaemonSet struct {
	// Name is its namespace and name, and LoadBalancers are those that name it.
	Name          string
	LoadBalancers []string
	// Rolled says that its pods may be deleted, and Next is the UID of the one that is next.
	Rolled bool
	Next   string
	// Known says that its pods on the Node could be read, and Pods are they.
	Known bool
	Pods  []Pod
}

// A Replacement is that of a pod by another one of the same DaemonSet.
type Replacement struct {
	// DaemonSet is the name of the DaemonSet.
	DaemonSet string
	// Pod is the UID of the pod that we delete; empty if somebody else does.
	Pod string
}

// podEnds is the Trigger of a pod that somebody else deletes, and rolled that of one that we do.
func podEnds(set string) Trigger { return Trigger("DaemonSetPod " + set) }
func rolled(set string) Trigger  { return Trigger("DaemonSetRoll " + set) }

// replacements are those on the Node, in the order of the DaemonSets. free says that the Node is
// to be out for nothing else. Nobody asks what becomes of the pods of a machine that leaves.
func (n Node) replacements(r Record, free bool) (all []Replacement) {
	if n.Machine != Stays {
		return nil
	}
	for _, d := range n.DaemonSets {
		on, recorded := r.replacement(d.Name)
		if now, is := d.replacement(on, recorded && r.UID == n.UID, free); is {
			all = append(all, now)
		}
	}
	return all
}

// replacement is what is on record of a DaemonSet.
func (r Record) replacement(set string) (on Replacement, recorded bool) {
	i := slices.IndexFunc(r.Replaces, func(on Replacement) bool { return on.DaemonSet == set })
	if i < 0 {
		return Replacement{DaemonSet: set}, false
	}
	return r.Replaces[i], true
}

// replacement says whether a pod is being replaced. That begins when one terminates, or is the next
// one to be deleted, and ends when another one serves. Between the two there may be no pod at all,
// or one that is not Ready: on says that it has begun.
func (d DaemonSet) replacement(on Replacement, recorded, free bool) (now Replacement, is bool) {
	switch {
	case !d.Known:
		return on, recorded
	case !recorded && d.Next != "" && free:
		return Replacement{d.Name, d.Next}, true
	case slices.ContainsFunc(d.Pods, func(p Pod) bool { return p.serves() && (!recorded || p.UID != on.Pod) }):
		return on, false
	case recorded && d.Waits(on):
		return on, d.Rolled && free
	case recorded:
		return on, true
	default:
		return Replacement{DaemonSet: d.Name}, slices.ContainsFunc(d.Pods, func(p Pod) bool { return p.Ends })
	}
}

// Waits reports whether the pod is still to be deleted.
func (d DaemonSet) Waits(on Replacement) bool {
	return on.Pod != "" && slices.ContainsFunc(d.Pods, func(p Pod) bool { return p.UID == on.Pod && !p.Ends })
}

// triggerOf is the first reason of replacements, and which load balancers they are about.
func (n Node) triggerOf(all []Replacement) (t Trigger, about []string) {
	for _, on := range all {
		if t == "" {
			t = rolled(on.DaemonSet)
		}
		for _, d := range n.DaemonSets {
			if d.Name == on.DaemonSet {
				about = append(about, d.LoadBalancers...)
			}
		}
	}
	if i := slices.IndexFunc(all, func(on Replacement) bool { return on.Pod == "" }); i >= 0 {
		t = podEnds(all[i].DaemonSet)
	}
	slices.Sort(about)
	return t, slices.Compact(about)
}
