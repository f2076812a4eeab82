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
	// StaleRequest means that the request is older than the Machine, or has been
	// served already.
	StaleRequest Request = "Stale"
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
	// Eject takes the machine out at once.
	Eject Step = "Eject"
	// Await waits for the machine to be gone.
	Await Step = "Await"
	// Disarm turns the schedule off and forgets the request, in one write.
	Disarm Step = "Disarm"
	// Clear takes the request off the Node.
	Clear Step = "Clear"
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
	// Ejected says that everything that can be done to hasten the Machine's going has
	// been done.
	Ejected bool
}

// DecideReclaim returns the next step. Remembering comes before ejecting, ejecting
// before disarming, and disarming before clearing: after a crash between any two,
// what is left behind leads on to the next.
func DecideReclaim(f ReclaimFacts) Step {
	switch {
	case f.Remembered && f.Machine == Absent:
		return Disarm
	case f.Remembered && f.Ejected:
		return Await
	case f.Remembered, f.Returned && !f.Ejected:
		return Eject
	case f.Request == FreshRequest && f.Machine != Absent:
		return Remember
	case f.Request == StaleRequest:
		return Clear
	default:
		return Rest
	}
}
