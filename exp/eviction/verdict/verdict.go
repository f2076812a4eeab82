// SPDX-License-Identifier: Apache-2.0

// Package verdict answers two questions: what is said to somebody who evicts a pod that an
// operator moves, and what becomes of a request that an operator was sent? It knows nothing of
// Kubernetes: it neither reads nor writes.
//
// A pod is known by its UID, which is bound to its Node. So nothing that was written about an
// earlier pod of the same name says anything about this one, and a pod that still runs on a Node
// that is drained is never said to be gone.
package verdict

import (
	"fmt"
	"strings"
	"time"
)

// A Node is what is known of the one that a pod is bound to.
type Node int

const (
	// Unknown is one that could not be read.
	Unknown Node = iota
	// Absent is one that does not exist.
	Absent
	// Healthy is one that nobody drains.
	Healthy
	// Draining is one that somebody drains.
	Draining
)

// What becomes of an eviction from a Node that nobody drains.
const (
	HealthyAllow    = "Allow"
	HealthyRelocate = "Relocate"
	HealthyDeny     = "Deny"
)

// What becomes of a pod that was not moved in time.
const (
	FallbackAllow  = "Allow"
	FallbackDeny   = "Deny"
	FallbackDelete = "Delete"
)

// A Pod is what matters of a pod.
type Pod struct {
	UID     string
	Created time.Time
	// Bound says that it has a Node.
	Bound bool
	// Pending, Finished and Leaving say that it does not run yet, that it has ended, and that it is
	// being deleted.
	Pending, Finished, Leaving bool
	// Marked says that it bears what asks its operator to move it, or that somebody else has
	// begun to move it. MarkedAt is when it got that from us, zero if it did not.
	Marked   bool
	MarkedAt time.Time
}

// A Policy is the one that selects a pod.
type Policy struct {
	// Says is the policy as people name it.
	Says                  string
	HealthyNode, Fallback string
	// Deadline is how long the operator has.
	Deadline time.Duration
	// Most is how many of its pods of a namespace are asked for at a time; zero is no limit.
	Most int
}

// A Request is what an operator was asked.
type Request struct {
	// Since is when it was written down, Queued when it last took its place in the line, and FirstAsked
	// when we asked the operator first, zero if nobody wrote that down.
	Since, Queued, FirstAsked time.Time
	// Relocation says that nobody drained its Node then, and Withdrawn that nobody asks any more.
	Relocation, Withdrawn bool
	// Node is that of its pod.
	Node Node
}

// Facts are everything that an answer depends on.
type Facts struct {
	Now time.Time
	// UID is that of the pod that is meant, empty if any of the name is.
	UID string
	// Pod is the one of that name, nil if there is none.
	Pod *Pod
	// Policy selects it, nil if none does.
	Policy *Policy
	// Node is that of the pod.
	Node Node
	// Request is the one for this pod, nil if there is none.
	Request *Request
	// Moved are those for other pods of the same name.
	Moved []Request
	// DryRun says that nothing is written, whatever is decided.
	DryRun bool
	// Refused says that the operator cannot be asked: the pod may not be changed.
	Refused bool
	// Others is how many other pods of the policy in the namespace the operator is moving, or is about to
	// be asked for: of two that are in the line, the later counts the earlier while that is Fresh.
	Others int
	// Keep is for how long a pod that was moved is not taken for one that is to be.
	Keep time.Duration
}

// An Answer is what is said to whoever evicts.
type Answer int

const (
	// Allow leaves the eviction to the API server's own checks.
	Allow Answer = iota
	// Wait has them try again.
	Wait
	// Gone says that there is no such pod on the Node any more.
	Gone
)

// A Step is what is written before the answer is given, and whether it is given then.
type Step int

const (
	// None writes nothing.
	None Step = iota
	// Record writes a request down. The facts are looked at again then.
	Record
	// Queue has the request take its place in the line anew. The facts are looked at again then.
	Queue
	// Mark asks the operator.
	Mark
	// Confirm writes down when the operator was asked: whoever asked it did not come to that.
	Confirm
	// Delete deletes the pod.
	Delete
	// Forget takes the mark away by which others know that the pod is waited for.
	Forget
)

// A Decision says what is said, and what is written first.
type Decision struct {
	Answer Answer
	Step   Step
	// Message says it to people, and Cause says for whom or what is waited. The same state gives
	// the same texts: Cluster API shows them in a condition.
	Message, Cause string
	// Relocation says that a request that is recorded is for a Node that nobody drains.
	Relocation bool
	// Outcome is the decision in one word, for metrics.
	Outcome string
}

// Outcomes of a Decision.
const (
	NotSelected    = "NotSelected"
	OtherPod       = "OtherPod"
	NotRunning     = "NotRunning"
	NoNode         = "NoNode"
	HealthyNode    = "HealthyNode"
	NoPod          = "NoPod"
	Rescheduled    = "Rescheduled"
	NodeUnknown    = "NodeUnknown"
	Requested      = "Requested"
	Waiting        = "Waiting"
	WaitingForTurn = "WaitingForTurn"
	Withdrawing    = "Withdrawing"
	Denied         = "Denied"
	Overdue        = "Overdue"
)

// Decide says what is said to whoever evicts a pod.
func Decide(f Facts) Decision {
	switch {
	case f.Pod == nil:
		return Decision{Answer: Gone, Outcome: NoPod, Message: "Pod no longer exists"}
	case f.UID != "" && f.UID != f.Pod.UID:
		return Decision{Outcome: OtherPod}
	case f.Policy == nil:
		return Decision{Outcome: NotSelected}
	case f.Pod.Finished, f.Pod.Leaving:
		return Decision{Outcome: NotRunning}
	case !f.Pod.Bound:
		return f.moved(Decision{Outcome: NotRunning})
	case f.Node == Unknown:
		return f.wait(NodeUnknown, "it cannot be read whether the pod's Node is being drained")
	case f.Node == Absent:
		return Decision{Outcome: NoNode}
	case f.Node == Healthy:
		return f.moved(f.healthy())
	case f.Pod.Pending:
		return Decision{Outcome: NotRunning}
	default:
		return f.ask(false)
	}
}

// moved is other, unless the pod took the place of one that was moved away not long ago: then
// nobody means this one, but who names it by its UID.
func (f Facts) moved(other Decision) Decision {
	if f.UID != "" || !f.Now.Before(f.Pod.Created.Add(f.Keep)) {
		return other
	}
	for _, m := range f.Moved {
		switch {
		case m.Withdrawn, f.Pod.Created.Before(m.Since), m.Node == Healthy && !m.Relocation: // Nobody asks for that one any more.
		case m.Node == Unknown:
			other = f.wait(NodeUnknown, "it cannot be read whether the Node of the pod's predecessor is being drained")
		default:
			return Decision{Answer: Gone, Step: Forget, Outcome: Rescheduled, Message: "Pod has been rescheduled with the same name"}
		}
	}
	return other
}

// healthy is for a pod on a Node that nobody drains.
func (f Facts) healthy() Decision {
	switch {
	case f.Pod.Pending:
		return Decision{Outcome: NotRunning}
	case f.Policy.HealthyNode == HealthyDeny:
		d := f.wait(Denied, "its Node is not being drained, and the policy allows no eviction from it")
		d.Message = "Pod may not be evicted from a Node that is not being drained"
		return d
	case f.Policy.HealthyNode == HealthyRelocate:
		return f.ask(true)
	default:
		return Decision{Outcome: HealthyNode}
	}
}

// Fresh is how long a request keeps its place in the line before its operator has been asked. Whoever
// asks has found it to be less than half as old, and writes the mark within the other half, or has given up.
const Fresh = 30 * time.Second

// ask is for a pod that is to leave its Node.
func (f Facts) ask(relocation bool) Decision {
	r, ask := f.Request, f.wait(Requested, "")
	ask.Message, ask.Relocation = "Reschedule annotation added to pod", relocation
	if f.DryRun {
		ask = f.wait(Requested, "its operator would be asked to move it")
		ask.Message = "Reschedule annotation would be added to pod"
	}
	switch {
	case r == nil:
		ask.Step = Record
	case r.Withdrawn:
		return f.wait(Withdrawing, "an earlier request to its operator is being withdrawn")
	case r.Overdue(*f.Pod, f.Policy.Deadline, f.Now), f.Refused && !f.Now.Before(r.Since.Add(f.Policy.Deadline)):
		return f.fallback()
	case f.Pod.Marked:
		ask = f.wait(Waiting, "")
		if r.FirstAsked.IsZero() && r.marked(*f.Pod, f.Now) {
			ask.Step = Confirm
		}
	case f.Policy.Most > 0 && f.Others >= f.Policy.Most:
		return f.wait(WaitingForTurn, "its operator is moving as many other pods as the policy allows")
	case !f.Now.Before(r.queued(f.Now).Add(Fresh / 2)): // It must still be Fresh when the mark is written.
		ask.Step = Queue
	default:
		ask.Step = Mark
	}
	return ask
}

// Fresh reports whether a request keeps its place in the line.
func (r Request) Fresh(now time.Time) bool { return now.Before(r.queued(now).Add(Fresh)) }

// queued is when the request took its place in the line. One that is yet to come is of a clock that was ahead.
func (r Request) queued(now time.Time) time.Time {
	if r.Queued.After(now.Add(Fresh / 2)) {
		return r.Since
	}
	return r.Queued
}

// Asked is since when the operator of a pod has been asked, zero if it has not been: from when we
// marked the pod first, or from when we saw that somebody else had. It stays so if the mark is taken
// away.
func (r Request) Asked(p Pod, now time.Time) time.Time {
	switch {
	case !r.FirstAsked.IsZero() && !r.FirstAsked.After(now):
		return r.FirstAsked
	case r.marked(p, now):
		return p.MarkedAt
	case p.Marked:
		return r.queued(now)
	default:
		return time.Time{}
	}
}

// marked reports whether we may have marked a pod when it says so. It may say so of an earlier request, or
// somebody who wants the deadline to be later does: a time before the request does not count, nor one after
// it was Fresh. One that has not come is of a clock that is ahead.
func (r Request) marked(p Pod, now time.Time) bool {
	at := p.MarkedAt
	return !at.IsZero() && !at.Before(r.Since) && !at.After(r.queued(now).Add(Fresh)) && !at.After(now)
}

// Overdue reports whether the operator of a pod has had its time.
func (r Request) Overdue(p Pod, deadline time.Duration, now time.Time) bool {
	since := r.Asked(p, now)
	return !since.IsZero() && !now.Before(since.Add(deadline))
}

// fallback is for a pod that was not moved in time.
func (f Facts) fallback() Decision {
	d := f.wait(Overdue, fmt.Sprintf("its operator did not move it within %s", f.Policy.Deadline))
	switch f.Policy.Fallback {
	case FallbackAllow:
		return Decision{Outcome: Overdue}
	case FallbackDelete:
		d.Step = Delete
		if d.Cause += ", and it is deleted"; f.DryRun {
			d.Cause = strings.TrimSuffix(d.Cause, "is deleted") + "would be deleted"
		}
	}
	return d
}

// wait has them try again.
func (f Facts) wait(outcome, why string) Decision {
	if why == "" {
		why = "its operator has been asked to move it"
	}
	return Decision{Answer: Wait, Outcome: outcome, Message: "Pod waiting to be rescheduled", Cause: f.Policy.Says + ": " + why}
}
