// SPDX-License-Identifier: Apache-2.0

// Package departure answers one question: which of the machines of a Cluster that are to
// leave may start to leave now? It knows nothing about Kubernetes, and the time is a fact
// like any other.
//
// It does not know why a machine is to leave, and never decides that one is: whoever it
// lets go had to go, and whoever it keeps has to go later. It holds no state. The same facts
// give the same plan, and what has to wait is found again by the next look.
//
// What is metered is the start of a departure, not its pace: in any 10 s no more than a
// fraction of the machines start, however often somebody looks.
package departure

import "time"

const (
	// Window is the time in which starts are counted.
	Window = 10 * time.Second
	// Patience is how long a candidate waits before it comes first, whatever its priority.
	Patience = 10 * time.Minute
)

// A Lane is how far a departure has to wait for others. The values are those of the record
// on the Machine. The third, exempt, waits for nobody and is never a candidate.
type Lane string

// The lanes of candidates.
const (
	// Scheduled is for the end of a window that was announced.
	Scheduled Lane = "scheduled"
	// Unscheduled is for every other departure that nobody needs at once.
	Unscheduled Lane = "unscheduled"
)

// A Candidate is a machine that is to leave and has not started to.
type Candidate struct {
	// Name is namespace and name of its ScheduledMachine; no two have the same.
	Name string
	// Lane is its lane. Whatever is not Scheduled waits as Unscheduled does.
	Lane Lane
	// Priority ranks machines: the lowest leaves first.
	Priority int32
	// End is when its window ended; zero if it leaves for another reason.
	End time.Time
	// NeverRan reports that its Machine never had a Node.
	NeverRan bool
	// Since is since when it has been a candidate; zero is since now.
	Since time.Time
	// Refused is when it was last let go in vain: its deletion was refused. Zero is never.
	Refused time.Time
}

// A Fleet is what is known of the machines of one Cluster at one instant.
type Fleet struct {
	// Now is that instant.
	Now time.Time
	// Active is how many machines are in the Cluster and not leaving, candidates among them.
	Active int
	// NeverRan is how many of Active never had a Node. They do not raise the limit of Unscheduled.
	NeverRan int
	// Departed is how many have started to leave within Patience, for whatever reason.
	Departed int
	// Started are the instants at which departures have started, in any order: those of the
	// last Window matter. Exempt ones are among them, and those whose machine is gone. No
	// instant may be before the real start: one that is stored to the second is its end.
	Started []time.Time
	// Candidates are the machines that are to leave, in any order.
	Candidates []Candidate
	// Gates are those that are closed.
	Gates Gates
}

// Gates hold candidates back, however few there are and however late they are. The zero
// value holds nobody.
type Gates struct {
	// Hold is the message of a person's hold of all departures; empty without a hold.
	Hold string
	// ClockSuspect says that our clock and the API server's differ.
	ClockSuspect bool
	// WarmUp is how much is still unknown since this manager leads.
	WarmUp WarmUp
	// WipeQuarantine says that nearly all machines seem to be unwanted all at once, and that
	// nobody has confirmed it. It holds Unscheduled only.
	WipeQuarantine bool
}

// WarmUp is how much a manager that has begun to lead still has to learn.
type WarmUp int

// The stages of a warm-up, from its end to its beginning.
const (
	// Warm knows everything.
	Warm WarmUp = iota
	// Learning has yet to see what Unscheduled needs: how many machines there were, and that
	// no other manager can believe to lead. Scheduled may leave.
	Learning
	// Cold has yet to see what started just before it led. It holds everybody.
	Cold
)

// Limits bound how many may leave. The zero value limits nothing.
type Limits struct {
	// Cap is the part of a Cluster's machines that may start to leave within Window.
	Cap Fraction
}

// A Reason says in a word what a candidate waits for. The values are those of the condition
// DepartureGated.
type Reason string

// The reasons, the one that counts first.
const (
	DeparturesHeld Reason = "DeparturesHeld"
	ClockSuspect   Reason = "ClockSuspect"
	WarmingUp      Reason = "WarmUp"
	WipeQuarantine Reason = "WipeQuarantine"
	BlastRadiusCap Reason = "BlastRadiusCap"
)

// A Plan says who starts to leave now, who has to wait and why. Each candidate is in one of
// its three lists, which are in the order in which machines leave.
type Plan struct {
	// Limits are those that were kept, and Gates those that were closed.
	Limits Limits
	Gates  Gates
	// Admitted start now.
	Admitted []Candidate
	// Deferred wait for the limit, Held for a gate to open.
	Deferred, Held []Waiting
	// Members is how many machines the limit of the lane Unscheduled counts: those that there were before
	// the starts of Window. ScheduledMembers is that number for the lane Scheduled.
	Members, ScheduledMembers int
	// Cap is how many of the lane Unscheduled may start within Window, and Left how many of these are
	// left once the plan is carried out. Both are zero where there is no limit.
	Cap, Left int
	// Next is the next instant at which time alone lets a deferred candidate start, once the plan is
	// carried out; zero is never. It does not know when a gate opens.
	Next time.Time
}

// HeldFor returns how many candidates are held for a reason.
func (p Plan) HeldFor(reason Reason) (n int) {
	for _, w := range p.Held {
		if w.Reason == reason {
			n++
		}
	}
	return n
}

// A Waiting is a candidate that does not start now.
type Waiting struct {
	Candidate
	// Reason is what it waits for.
	Reason Reason
}
