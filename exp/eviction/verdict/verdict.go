// SPDX-License-Identifier: Apache-2.0

// Package verdict decides how the guard answers the eviction of a pod that an operator moves, and what happens next to
// a RescheduleRequest. Its functions are pure: it imports no Kubernetes package, and neither reads nor writes.
//
// A UID identifies a pod, and binds it to its Node. A record about an earlier pod with the same name does not apply to
// this pod. The answer for a pod that still runs on a draining Node is never 404.
package verdict

import (
	"fmt"
	"strings"
	"time"
)

// A Node is the state of the Node that a pod is bound to.
type Node int

const (
	// Unknown means that the Node could not be read.
	Unknown Node = iota
	// Absent means that the Node does not exist.
	Absent
	// Healthy means that the Node is not being drained.
	Healthy
	// Draining means that the Node is being drained.
	Draining
)

// Values of Policy.HealthyNode: the answer to an eviction from a Node that is not being drained.
const (
	HealthyAllow    = "Allow"
	HealthyRelocate = "Relocate"
	HealthyDeny     = "Deny"
)

// Values of Policy.Fallback: the answer for a pod that its operator did not move before the deadline.
const (
	FallbackAllow  = "Allow"
	FallbackDeny   = "Deny"
	FallbackDelete = "Delete"
)

// A Pod has the facts of a pod that the decision needs.
type Pod struct {
	UID     string
	Created time.Time
	// Bound reports that the pod is bound to a Node.
	Bound bool
	// Pending reports that the pod has not started, Finished that it succeeded or failed, Leaving that it has a
	// deletionTimestamp.
	Pending, Finished, Leaving bool
	// Marked reports that the pod has the mark for its operator, or that another client moves it. MarkedAt is when the
	// guard marked it, zero if it did not.
	Marked   bool
	MarkedAt time.Time
}

// A Policy is the policy that selects a pod.
type Policy struct {
	// Name is the kind and name of the policy, for messages.
	Name                  string
	HealthyNode, Fallback string
	// Deadline is how long the operator has.
	Deadline time.Duration
	// MaxConcurrent is the number of its pods in a namespace that may move at a time. Zero is no limit.
	MaxConcurrent int
}

// A Request is the request to an operator to move a pod.
type Request struct {
	// Since is its creation. Queued is when it last entered the queue. FirstMarked is when the guard first marked the
	// pod, zero if not recorded.
	Since, Queued, FirstMarked time.Time
	// Relocation reports that its Node was not draining, Withdrawn that the request is being withdrawn.
	Relocation, Withdrawn bool
	// Node is the Node of its pod.
	Node Node
}

// Facts are the input of Decide.
type Facts struct {
	Now time.Time
	// UID is the UID precondition of the eviction, empty without one.
	UID string
	// Pod is the pod with the name, nil if there is none.
	Pod *Pod
	// Policy is the policy that selects the pod, nil if none does.
	Policy *Policy
	// Node is the Node of the pod.
	Node Node
	// Request is the request for this pod, nil if there is none.
	Request *Request
	// Moved are the requests for other pods of the same name.
	Moved []Request
	// DryRun prevents all writes.
	DryRun bool
	// Refused reports that the API server refused to mark the pod.
	Refused bool
	// Others counts the other pods of the policy in the namespace that are being moved or are ahead in the
	// queue. A pod is ahead if its request was written before this one, and is younger than QueueTTL.
	Others int
	// NameProtection protects new pods: for this long after its creation, a pod with the name of a moved pod is not
	// evicted by name alone.
	NameProtection time.Duration
}

// An Answer is the answer to an eviction.
type Answer int

const (
	// Allow leaves the eviction to the API server's own checks.
	Allow Answer = iota
	// Wait is 429: the client retries.
	Wait
	// Gone is 404: the pod is no longer on the Node.
	Gone
)

// A Write is the write before the answer.
type Write int

const (
	// None writes nothing.
	None Write = iota
	// Record creates the request. The facts are then read again.
	Record
	// Queue moves the request to the end of the queue. The facts are then read again.
	Queue
	// Mark marks the pod for its operator.
	Mark
	// Confirm records when the pod was marked, after a guard stopped between mark and record.
	Confirm
	// Delete deletes the pod.
	Delete
	// RemoveTrackingMark removes the tracking mark of a moved pod.
	RemoveTrackingMark
)

// A Decision is the answer to an eviction, and the write before it.
type Decision struct {
	Answer Answer
	Write  Write
	// Message and Cause are the texts of the answer. Equal facts give equal texts: Cluster API copies them into a
	// condition.
	Message, Cause string
	// Relocation: the request to record is for a Node that is not being drained.
	Relocation bool
	// Outcome is the label of the decision in metrics.
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

// Decide returns the answer to an eviction. It has a decision for all facts.
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
		return f.requestMove(false)
	}
}

// moved returns Gone if the pod replaces a moved pod and was created less than NameProtection ago, and if the eviction
// has no UID. The client means the moved pod. Otherwise it returns other.
func (f Facts) moved(other Decision) Decision {
	if f.UID != "" || !f.Now.Before(f.Pod.Created.Add(f.NameProtection)) {
		return other
	}
	for _, m := range f.Moved {
		switch {
		case m.Withdrawn, f.Pod.Created.Before(m.Since), m.Node == Healthy && !m.Relocation: // That drain is over.
		case m.Node == Unknown:
			other = f.wait(NodeUnknown, "it cannot be read whether the Node of the pod's predecessor is being drained")
		default:
			return Decision{Answer: Gone, Write: RemoveTrackingMark, Outcome: Rescheduled, Message: "Pod has been rescheduled with the same name"}
		}
	}
	return other
}

// healthy decides on a pod on a Node that is not draining.
func (f Facts) healthy() Decision {
	switch {
	case f.Pod.Pending:
		return Decision{Outcome: NotRunning}
	case f.Policy.HealthyNode == HealthyDeny:
		d := f.wait(Denied, "its Node is not being drained, and the policy allows no eviction from it")
		d.Message = "Pod may not be evicted from a Node that is not being drained"
		return d
	case f.Policy.HealthyNode == HealthyRelocate:
		return f.requestMove(true)
	default:
		return Decision{Outcome: HealthyNode}
	}
}

const (
	// QueueTTL is how long a request keeps its place. It is longer than two retries of Cluster API's drain, which are
	// 20 s apart.
	QueueTTL = time.Minute
	// longestWrite bounds a write of the guard. A pod is not marked in the last part of QueueTTL: the mark must be
	// written before others ignore the request.
	longestWrite = 15 * time.Second
)

// requestMove decides on a pod that must leave its Node.
func (f Facts) requestMove(relocation bool) Decision {
	r, ask := f.Request, f.wait(Requested, "")
	ask.Message, ask.Relocation = "Reschedule annotation added to pod", relocation
	if f.DryRun {
		ask = f.wait(Requested, "its operator would be asked to move it")
		ask.Message = "Reschedule annotation would be added to pod"
	}
	switch {
	case r == nil:
		ask.Write = Record
	case r.Withdrawn:
		return f.wait(Withdrawing, "an earlier request to its operator is being withdrawn")
	case r.Overdue(*f.Pod, f.Policy.Deadline, f.Now), f.Refused && !f.Now.Before(r.Since.Add(f.Policy.Deadline)):
		return f.fallback()
	case f.Pod.Marked:
		ask = f.wait(Waiting, "")
		if r.FirstMarked.IsZero() && r.validMarkTime(*f.Pod, f.Now) {
			ask.Write = Confirm
		}
	case f.Policy.MaxConcurrent > 0 && f.Others >= f.Policy.MaxConcurrent:
		return f.wait(WaitingForTurn, "its operator is moving as many other pods as the policy allows")
	case f.Now.Before(r.queued(f.Now).Add(QueueTTL - longestWrite)):
		ask.Write = Mark
	case f.Policy.MaxConcurrent > 0 && r.Fresh(f.Now):
		// Its request still blocks others. Queued again now, it would wait for them, and they for it: a deadlock.
		return f.wait(WaitingForTurn, fmt.Sprintf("its request is queued again within %s", longestWrite))
	default:
		ask.Write = Queue
	}
	return ask
}

// Fresh reports whether a request keeps its place in the queue.
func (r Request) Fresh(now time.Time) bool { return now.Before(r.queued(now).Add(QueueTTL)) }

// queued returns when the request entered the queue. It ignores a time in the future, which comes from a clock that was
// ahead.
func (r Request) queued(now time.Time) time.Time {
	if r.Queued.After(now.Add(longestWrite)) {
		return r.Since
	}
	return r.Queued
}

// RequestedAt returns when the move of a pod was first requested from its operator, zero if it was not. That is when
// the guard marked the pod, or when the guard saw the mark of another client. A removal of the mark does not change it.
func (r Request) RequestedAt(p Pod, now time.Time) time.Time {
	switch {
	case !r.FirstMarked.IsZero() && !r.FirstMarked.After(now):
		return r.FirstMarked
	case r.validMarkTime(p, now):
		return p.MarkedAt
	case p.Marked:
		return r.queued(now)
	default:
		return time.Time{}
	}
}

// validMarkTime reports whether MarkedAt was plausibly written for this request: it lies between the request's creation and queue time +
// QueueTTL, and not in the future. Another client, or an earlier request, may have written it.
func (r Request) validMarkTime(p Pod, now time.Time) bool {
	at := p.MarkedAt
	return !at.IsZero() && !at.Before(r.Since) && !at.After(r.queued(now).Add(QueueTTL)) && !at.After(now)
}

// Overdue reports whether the deadline of the operator has passed.
func (r Request) Overdue(p Pod, deadline time.Duration, now time.Time) bool {
	since := r.RequestedAt(p, now)
	return !since.IsZero() && !now.Before(since.Add(deadline))
}

// fallback decides on a pod that its operator did not move before the deadline.
func (f Facts) fallback() Decision {
	d := f.wait(Overdue, fmt.Sprintf("its operator did not move it within %s", f.Policy.Deadline))
	switch f.Policy.Fallback {
	case FallbackAllow:
		return Decision{Outcome: Overdue}
	case FallbackDelete:
		d.Write = Delete
		if d.Cause += ", and it is deleted"; f.DryRun {
			d.Cause = strings.TrimSuffix(d.Cause, "is deleted") + "would be deleted"
		}
	}
	return d
}

// Changing returns the 429 for a pod whose objects other clients change faster than they can be decided on.
func Changing(p *Policy) Decision {
	return Facts{Policy: p}.wait(Waiting, "the pod or its request keeps changing")
}

// wait returns a 429 with its cause.
func (f Facts) wait(outcome, why string) Decision {
	if why == "" {
		why = "its operator has the request to move it"
	}
	return Decision{Answer: Wait, Outcome: outcome, Message: "Pod waiting to be rescheduled", Cause: f.Policy.Name + ": " + why}
}
