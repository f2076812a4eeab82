// SPDX-License-Identifier: Apache-2.0

// Package departurecap decides which machines of a Cluster that are due to leave may start now. It is pure: it
// imports no Kubernetes package, holds no state, and gets the time as an input. The same facts give the same
// plan.
//
// It does not decide that a machine leaves. It admits, defers or holds candidates that other code has decided
// to remove. It limits starts: in any 10 s, at most a fraction of the machines of a Cluster start to leave,
// and at most the same fraction of the machines of all Clusters, however often it is called.
package departurecap

import (
	"slices"
	"time"
)

const (
	// Window is the sliding time window in which starts are counted.
	Window = 10 * time.Second
	// MaxWait is the wait after which a candidate comes first, whatever its priority. It is also how long
	// starts count for the limit of the lane Scheduled.
	MaxWait = 10 * time.Minute
)

// A Lane determines which limits apply to a departure. The values are the ones in the departure record on the
// Machine. The third lane, exempt, has no limits and no candidates.
type Lane string

// The lanes of candidates.
const (
	// Scheduled is for the end of an announced window.
	Scheduled Lane = "scheduled"
	// Unscheduled is for every other departure that is not urgent.
	Unscheduled Lane = "unscheduled"
)

// A Candidate is a machine that is due to leave and has not started.
type Candidate struct {
	// Name is the namespace and name of its Machine. It is unique.
	Name string
	// Lane is its lane. Any other value than Scheduled counts as Unscheduled.
	Lane Lane
	// Priority orders candidates: the lowest leaves first.
	Priority int32
	// End is when its window ended, zero if it leaves for another reason.
	End time.Time
	// NeverRan reports that its Machine never had a Node.
	NeverRan bool
	// Since is when it became a candidate. Zero means now.
	Since time.Time
	// Failed is when its departure last failed: its admission could not be written, or expired. Zero if never.
	Failed time.Time
}

// A Fleet is the state of the machines of one Cluster at one instant.
type Fleet struct {
	// Now is that instant.
	Now time.Time
	// Counts are the counts of the Cluster before the plan, without Waiting, Aged, and Planned.
	Counts
	// Candidates are the machines that are due to leave, in any order.
	Candidates []Candidate
	// Holds are the holds that apply, in order of precedence: a candidate waits for the first one of its lane.
	Holds []Hold
	// Others has the counts of the other Clusters that the manager serves. Many small Clusters are one fleet: each of
	// them may always start one departure.
	Others Counts
}

// Counts are the counts of some Clusters.
type Counts struct {
	// Active is the number of machines that have neither started to leave nor an admission, including candidates.
	Active int
	// NeverRan is the number of active machines that never had a Node. They do not raise the limit of
	// Unscheduled.
	NeverRan int
	// Departed is the number of machines that started to leave within MaxWait, for any reason, or are admitted.
	Departed int
	// Started has the instants of starts, in any order. Only starts within Window count. It includes exempt
	// departures and machines that are gone. No instant may be before the real start: an instant with a
	// precision of one second must be rounded up.
	Started []time.Time
	// Waiting is the number of deferred candidates without a recent refusal.
	Waiting int
	// Aged has, for each candidate that its own Cluster would admit and that has waited longer than MaxWait, when its wait
	// began.
	Aged []time.Time
	// Planned is when Waiting and Aged were counted.
	Planned time.Time
}

// MaxRun is how long a run of the planner, and each of its writes, may take: workers.Deadline.
const MaxRun = 30 * time.Second

// planLasts is how long the waiting candidates of a Cluster count for the others. A Cluster with such candidates is
// planned again after each Window. One whose planner fails must not delay the others.
const planLasts = MaxRun + Window

// Plus returns the sum of c and the counts of one more Cluster at now. From that Cluster, only the starts within Window
// count, and no more than its own limit: other starts are exempt, or records that another client wrote. Its waiting
// candidates count for planLasts.
func (c Counts) Plus(o Counts, limit Fraction, now time.Time) Counts {
	recent, lately := Recent(o.Started, now), Within(o.Started, now, MaxWait)
	o.Departed = len(lately)
	if now.Sub(o.Planned) > planLasts {
		o.Waiting, o.Aged = 0, nil
	}
	if limit > 0 {
		recent = recent[max(0, len(recent)-limit.Of(o.members(Scheduled, len(recent)))):]
	}
	return Counts{
		Active: c.Active + o.Active, NeverRan: c.NeverRan + o.NeverRan, Departed: c.Departed + o.Departed,
		Started: append(c.Started, recent...), Waiting: c.Waiting + o.Waiting, Aged: append(c.Aged, o.Aged...),
	}
}

// A Hold keeps all candidates of a lane from starting, however few they are and however late.
type Hold struct {
	// Reason and Message describe why. They are the reason and the message of the condition DepartureGated, so Message
	// has no numbers that change while other machines leave.
	Reason  Reason
	Message string
	// Unscheduled reports that it holds only the lane Unscheduled.
	Unscheduled bool
}

// A Reason is why a candidate waits: a reason of the condition DepartureGated. Each rail has its own.
type Reason string

// BlastRadiusCap is the reason of the candidates that wait for the limit.
const BlastRadiusCap Reason = "BlastRadiusCap"

// A Plan is the result of Decide. Each candidate is in one of its three lists. The lists are in the order in
// which machines leave.
type Plan struct {
	// Admitted may start now.
	Admitted []Candidate
	// Deferred wait for the limit, Held for a Hold.
	Deferred, Held []Waiting
	// Members is the number of machines from which the limit of Unscheduled is computed. It includes the machines that
	// started to leave within Window.
	Members int
	// Next is the first instant at which the limit admits a deferred candidate after this plan, zero if none.
	// It does not consider holds.
	Next time.Time
}

// Only returns p without the candidates for which keep returns false. These took part in the order, and
// are neither admitted nor answered.
func (p Plan) Only(keep func(name string) bool) Plan {
	drop := func(w Waiting) bool { return !keep(w.Name) }
	p.Admitted = slices.DeleteFunc(p.Admitted, func(c Candidate) bool { return !keep(c.Name) })
	p.Held, p.Deferred = slices.DeleteFunc(p.Held, drop), slices.DeleteFunc(p.Deferred, drop)
	return p
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
	// Reason and Message describe why it waits.
	Reason  Reason
	Message string
	// Cap is how many machines of its lane may start within Window, and Of is the number of machines from which that is
	// computed. Both are zero if it is held.
	Cap, Of int
}
