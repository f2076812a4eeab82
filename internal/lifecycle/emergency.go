// SPDX-License-Identifier: Apache-2.0

package lifecycle

// Request is what is known of a Node's request to be given back.
type Request string

// The requests; the zero value is none.
const (
	// NoRequest means that the Node asks for nothing.
	NoRequest Request = ""
	// FreshRequest means that the Node asks, and asks about this Machine.
	FreshRequest Request = "Fresh"
	// StaleRequest means that the request is older than the Machine.
	StaleRequest Request = "Stale"
	// ServedRequest means that the request has been served already.
	ServedRequest Request = "Served"
	// ForeignRequest means that the Node is not the host that the Machine was made on.
	ForeignRequest Request = "Foreign"
)

// Step is the next step of an emergency reclaim.
type Step string

// The steps, in their order. Each is idempotent, and each leaves behind what the
// next one needs to be found after a crash.
const (
	// Rest does nothing.
	Rest Step = "Rest"
	// Remember writes the request down where it survives everything.
	Remember Step = "Remember"
	// Recall writes a request down again that was taken off after the Machine was told to go.
	Recall Step = "Recall"
	// Eject takes the machine out at once.
	Eject Step = "Eject"
	// Evict makes the pods be started elsewhere: the Node's machine is going.
	Evict Step = "Evict"
	// DeleteNode deletes a Node whose machine is gone.
	DeleteNode Step = "DeleteNode"
	// Await waits for the machine to be gone.
	Await Step = "Await"
	// Disarm turns the schedule off and forgets the request, in one write.
	Disarm Step = "Disarm"
	// Clear takes the request off the Node.
	Clear Step = "Clear"
	// Refuse does nothing, and says so.
	Refuse Step = "Refuse"
	// Forget drops a request that was written down and must not be served.
	Forget Step = "Forget"
)

// ReclaimFacts are what one look at a machine and its Node shows.
type ReclaimFacts struct {
	// Remembered says that a request has been written down and not been served yet.
	Remembered bool
	// Returned says that something of the machine is there although a request has
	// been served and the schedule is off since: whoever made it had not seen that.
	Returned bool
	// Request is what the Node asks for now. A Node that cannot be seen asks for
	// nothing.
	Request Request
	// Machine is the Machine.
	Machine Presence
	// ForOwner says that the Machine is being deleted because its owner asked for it, as
	// the record of its departure tells.
	ForOwner bool
	// ControlPlane says that the Machine is one of a control plane.
	ControlPlane bool
	// InfrastructureGone says that the Machine's infrastructure is known not to exist:
	// false where it could not be read.
	InfrastructureGone bool
	// Node is the Node that asked, another of the same name not being it, or that of a
	// Machine which a person asked for. A Node that cannot be seen is absent: nothing
	// waits for it.
	Node Presence
	// NodeAsked says that it is known to be the one, by its UID.
	NodeAsked bool
	// Evicting says that the Node's pods are being started elsewhere already.
	Evicting bool
	// Expedited says that the Machine is being deleted and waits for nothing of Cluster
	// API's.
	Expedited bool
	// Ejected says that everything that can be done to hasten the Machine's going has
	// been done, as far as what there is can be read.
	Ejected bool
}

// Urgent returns the next step if it is one that an owner waits for, and that nothing
// can change which a provider or a workload cluster has to be asked for. Whoever
// decides looks there only if there is none: an outage of others must not hold up
// what takes a machine away.
func Urgent(f ReclaimFacts) (Step, bool) {
	switch {
	case !f.Remembered:
		return "", false
	case f.Machine == Absent:
		return Disarm, true
	case f.ControlPlane:
		return Forget, true
	case !f.Expedited && !f.Ejected:
		return Eject, true
	default:
		return "", false
	}
}

// DecideReclaim returns the next step. Remembering comes before ejecting, ejecting
// before disarming, and disarming before clearing: after a crash between any two,
// what is left behind leads on to the next. A Node comes after everything that
// gives the machine back, and a Machine of a control plane is never given back.
func DecideReclaim(f ReclaimFacts) Step {
	if step, urgent := Urgent(f); urgent {
		return step
	}
	switch {
	case f.Remembered && !f.Ejected, f.Returned && !f.Ejected && !f.ControlPlane:
		return Eject
	case f.Remembered:
		return leave(f)
	default:
		return answer(f)
	}
}

// leave is what is left to do for the Node of a machine that is on its way.
func leave(f ReclaimFacts) Step {
	switch {
	case f.Node == Present && f.NodeAsked && f.InfrastructureGone:
		return DeleteNode
	case f.Node != Absent && !f.Evicting:
		return Evict
	default:
		return Await
	}
}

// answer is the answer to what a Node asks while nothing is being served.
func answer(f ReclaimFacts) Step {
	if f.ForOwner && !f.Returned && !f.ControlPlane && f.Request != FreshRequest {
		return Recall
	}
	switch f.Request {
	case NoRequest:
		return Rest
	case ServedRequest:
		if f.Machine == Absent && f.InfrastructureGone && f.Node == Present && f.NodeAsked {
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
		return Rest
	case f.ControlPlane:
		return Refuse
	default:
		return Remember
	}
}
