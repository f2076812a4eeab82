// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// Pod is a pod of a DaemonSet.
type Pod struct {
	// UID is the UID of the pod. Revision is the revision hash of its template.
	UID, Revision string
	// Terminating means that the pod is being deleted. Ready is its Ready condition.
	Terminating, Ready bool
}

// serves reports whether the pod can get connections.
func (p Pod) serves() bool { return p.Ready && !p.Terminating }

// DaemonSet is a DaemonSet that load balancers name, and its state on one Node.
type DaemonSet struct {
	// Name is namespace/name. LoadBalancers are the names of the load balancers that name it.
	Name          string
	LoadBalancers []string
	// Rolled means that 5-Spot may delete its pods. Next is the UID of the pod that is replaced next.
	Rolled bool
	Next   string
	// Known means that its pods on the Node could be read. Pods are these pods.
	Known bool
	Pods  []Pod
}

// Replacement is the replacement of one pod by another pod of the same DaemonSet.
type Replacement struct {
	// DaemonSet is the namespace/name of the DaemonSet.
	DaemonSet string
	// Pod is the UID of the pod that 5-Spot deletes. It is empty if another party deletes it.
	Pod string
}

// replacements returns the replacements on the Node, in the order of the DaemonSets. free means that no other trigger
// detaches the Node. A machine that leaves has none. One that awaits its departure still gets connections.
func (n Node) replacements(r Record, free bool) (all []Replacement) {
	if n.Machine >= Leaves {
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

// replacement returns the recorded replacement of a DaemonSet.
func (r Record) replacement(set string) (on Replacement, recorded bool) {
	i := slices.IndexFunc(r.Replaces, func(on Replacement) bool { return on.DaemonSet == set })
	if i < 0 {
		return Replacement{DaemonSet: set}, false
	}
	return r.Replaces[i], true
}

// replacement returns the replacement of a pod, and whether it is in progress. It starts when a pod terminates, or when
// the roll selects it. It ends when another pod is Ready. In between, the Node may have no pod or an unready one; the
// record, on, shows that the replacement has started.
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
		return Replacement{DaemonSet: d.Name}, slices.ContainsFunc(d.Pods, func(p Pod) bool { return p.Terminating })
	}
}

// Waits reports whether the pod exists and is not terminating yet.
func (d DaemonSet) Waits(on Replacement) bool {
	return on.Pod != "" && slices.ContainsFunc(d.Pods, func(p Pod) bool { return p.UID == on.Pod && !p.Terminating })
}

// triggerOf returns the trigger of the first pod that another party deletes, or else of the first pod that 5-Spot
// deletes. about are the load balancers that the replacements concern.
func (n Node) triggerOf(all []Replacement) (t Trigger, about []string) {
	for _, on := range all {
		if t == "" {
			t = Trigger("DaemonSetRoll " + on.DaemonSet)
		}
		for _, d := range n.DaemonSets {
			if d.Name == on.DaemonSet {
				about = append(about, d.LoadBalancers...)
			}
		}
	}
	if i := slices.IndexFunc(all, func(on Replacement) bool { return on.Pod == "" }); i >= 0 {
		t = Trigger("DaemonSetPod " + all[i].DaemonSet)
	}
	slices.Sort(about)
	return t, slices.Compact(about)
}
