// SPDX-License-Identifier: Apache-2.0

package lifecycle

// Request is the state of an owner's request on a Node.
type Request string

// The requests. The zero value is none.
const (
	// NoRequest means that the Node has no request.
	NoRequest Request = ""
	// FreshRequest means that the Node has a request for this Machine.
	FreshRequest Request = "Fresh"
	// StaleRequest means that the request is older than the Machine.
	StaleRequest Request = "Stale"
	// ServedRequest means that the request has been served.
	ServedRequest Request = "Served"
	// ForeignRequest means that the Node is not the host on which the Machine was created.
	ForeignRequest Request = "Foreign"
)

// Step is the next step of an emergency reclaim.
type Step string

// The steps. DecideReclaim has their order. Each is idempotent, and stores what the next step needs after a crash.
const (
	// NoStep does nothing.
	NoStep Step = "NoStep"
	// RecordRequest stores the request on the ScheduledMachine.
	RecordRequest Step = "RecordRequest"
	// RestoreRequest stores a request again that was removed after the Machine's deletion.
	RestoreRequest Step = "RestoreRequest"
	// Eject removes the machine at once.
	Eject Step = "Eject"
	// Evict taints the Node, so that its pods start elsewhere.
	Evict Step = "Evict"
	// DeleteNode deletes a Node whose machine is gone.
	DeleteNode Step = "DeleteNode"
	// WaitForRemoval waits until the machine is gone.
	WaitForRemoval Step = "WaitForRemoval"
	// DisableSchedule turns the schedule off and removes the stored request, in one write.
	DisableSchedule Step = "DisableSchedule"
	// Clear removes the request from the Node, and the eviction taint if the machine is lent again.
	Clear Step = "Clear"
	// Refuse does nothing except report.
	Refuse Step = "Refuse"
	// DropRequest removes a stored request that must not be served.
	DropRequest Step = "DropRequest"
)

// ReclaimFacts are the observed state of a machine and its Node.
type ReclaimFacts struct {
	// Recorded reports that a request is stored and not served yet.
	Recorded bool
	// Reappeared reports that objects of the machine exist again, although a request was served and the schedule has
	// been off since. Their creator had not seen that.
	Reappeared bool
	// Request is the state of the request on the Node. A Node that cannot be read has none.
	Request Request
	// Machine is the state of the Machine.
	Machine Presence
	// ForOwner reports that the Machine is being deleted, and that its departure record names its owner's request.
	ForOwner bool
	// ControlPlane reports that the Machine is part of a control plane.
	ControlPlane bool
	// InfrastructureGone reports that the Machine's infrastructure is known not to exist. It is false if it
	// could not be read.
	InfrastructureGone bool
	// Node is the state of the Node that has the request, or of the Machine's Node if a person requested the
	// machine. Another Node of the same name does not count. A Node that cannot be read is absent, so that
	// nothing waits for it.
	Node Presence
	// RequestNamesNode reports that the request names the UID of this Node. It is false for a request of a person.
	RequestNamesNode bool
	// Evicting reports that the Node has the eviction taint.
	Evicting bool
	// Expedited reports that the Machine is being deleted and that Cluster API does not wait for it any more.
	Expedited bool
	// Ejected reports that Cluster API skips its waits, and that no provider object that can be read remains to be deleted.
	Ejected bool
}

// Urgent returns the next step if an owner waits for it and it needs no read from a provider or a workload cluster. The
// caller makes such reads only if there is none. An outage of them must not delay the removal.
func Urgent(f ReclaimFacts) (Step, bool) {
	switch {
	case !f.Recorded:
		return "", false
	case f.Machine == Absent:
		return DisableSchedule, true
	case f.ControlPlane:
		return DropRequest, true
	case !f.Expedited && !f.Ejected:
		return Eject, true
	default:
		return "", false
	}
}

// DecideReclaim returns the next step if Urgent returns none. Together they return RecordRequest, Eject, Evict,
// WaitForRemoval, DisableSchedule and Clear, in this order. DeleteNode runs when the infrastructure is gone. After a crash
// the stored state leads to the next step. A Machine of a control plane is never removed.
func DecideReclaim(f ReclaimFacts) Step {
	switch {
	case f.Recorded && !f.Ejected, f.Reappeared && !f.Ejected && !f.ControlPlane:
		return Eject
	case f.Recorded:
		return NodeStep(f)
	default:
		return requestStep(f)
	}
}

// NodeStep returns the remaining step for the Node of a machine that is being removed.
func NodeStep(f ReclaimFacts) Step {
	switch {
	case f.Node == Present && f.RequestNamesNode && f.InfrastructureGone:
		return DeleteNode
	case f.Node != Absent && !f.Evicting:
		return Evict
	default:
		return WaitForRemoval
	}
}

// requestStep returns the step for the request on a Node while no stored request is being served.
func requestStep(f ReclaimFacts) Step {
	if f.ForOwner && !f.Reappeared && !f.ControlPlane && f.Request != FreshRequest {
		return RestoreRequest
	}
	switch f.Request {
	case NoRequest:
		if f.Machine == Present && f.Evicting {
			return Clear // The Node outlived the give-back, and the machine joined again on it.
		}
		return NoStep
	case ServedRequest:
		if f.Machine == Absent && f.InfrastructureGone && f.Node == Present && f.RequestNamesNode {
			return DeleteNode
		}
		return Clear
	case StaleRequest:
		return Clear
	case ForeignRequest:
		return Refuse
	case FreshRequest:
	}
	switch {
	case f.Machine == Absent:
		return NoStep
	case f.ControlPlane:
		return Refuse
	default:
		return RecordRequest
	}
}
