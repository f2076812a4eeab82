// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

const (
	// wipeFloor is the smallest Cluster or fleet that is guarded. In a smaller one, nearly all machines may leave on any
	// day.
	wipeFloor = 10
	// wipeFraction is the divisor for the smallest part that must stay: one in ten.
	wipeFraction = 10
)

// A Wipe is the wipe quarantine of one Cluster. If nearly all machines of the Cluster or of the fleet would leave at once,
// the cause is often a truncated list, a wrong template or a mistaken deletion. Three checks in a row must confirm it.
//
// A manager that starts sets Baseline from the status of the machines. Otherwise a wipe during the restart
// would look like the normal state.
type Wipe struct {
	// Baseline is the number of machines that should stay by the latest accepted count.
	Baseline int
	// Held is how many checks in a row have seen an unconfirmed wipe. Zero means that nothing is held.
	Held int

	heldAt time.Time // the latest check that Held counts
	lower  int       // a count below Baseline
	since  time.Time // first count of lower, zero if none
}

// A Count is a count of all machines of a Cluster. A count that Suspects reports must be confirmed by a live
// list before Judge gets it.
type Count struct {
	// At is when the list was requested.
	At time.Time
	// Kept is the number of machines that are not due to leave in the unscheduled lane. A machine whose
	// announced window has ended is included until it starts to leave.
	Kept int
	// Left is how many machines have started to leave since the previous count, in any lane. The baseline is
	// reduced by it.
	Left int
	// Others are the machines of the other Clusters of the fleet. The zero value means that no Cluster is compared with
	// the others.
	Others Share
}

// A Share is what one Cluster contributes to the fleet.
type Share struct {
	// Baseline is the number of machines that should stay, and Kept the number of machines that would stay.
	Baseline, Kept int
}

// Plus returns the sum of two shares.
func (s Share) Plus(other Share) Share {
	return Share{s.Baseline + other.Baseline, s.Kept + other.Kept}
}

// wiped reports whether nearly all machines would leave.
func (s Share) wiped() bool { return s.Baseline >= wipeFloor && s.Kept*wipeFraction < s.Baseline }

// A WipeVerdict is the result of a check.
type WipeVerdict string

// The verdicts.
const (
	// Accepted means that the count is accepted and nothing is held.
	Accepted WipeVerdict = "Accepted"
	// Quarantined means that unscheduled departures are held.
	Quarantined WipeVerdict = "Quarantined"
	// Confirmed means that a wipe is confirmed and nothing is held any more.
	Confirmed WipeVerdict = "Confirmed"
)

// Share returns the share of the Cluster.
func (w Wipe) Share(c Count) Share { return Share{Baseline: max(0, w.Baseline-c.Left), Kept: c.Kept} }

// Suspects reports whether a check with this count would see a wipe of the Cluster or of the fleet.
func (w Wipe) Suspects(c Count) bool {
	own := w.Share(c)
	return own.wiped() || own.Plus(c.Others).wiped()
}

// Judge returns the quarantine after a check, and its verdict.
func (w Wipe) Judge(c Count) (Wipe, WipeVerdict) {
	suspected := w.Suspects(c)
	w.Baseline, w.lower = max(0, w.Baseline-c.Left), max(0, w.lower-c.Left)
	if !suspected {
		return w.acceptCount(c), Accepted
	}
	switch {
	case w.Held > 0 && c.At.Before(w.heldAt): // The clock was set back: the next check counts after Apart.
		w.heldAt = c.At
	case w.Held == 0 || c.At.Sub(w.heldAt) >= Apart:
		w.Held, w.heldAt = w.Held+1, c.At
	}
	if w.Held >= confirmations {
		return Wipe{Baseline: c.Kept}, Confirmed
	}
	return Wipe{Baseline: w.Baseline, Held: w.Held, heldAt: w.heldAt}, Quarantined
}

// Grow accepts a count only if it is higher. It is for the warm-up, when not all machines are known.
func (w Wipe) Grow(c Count) Wipe {
	w.Baseline = max(w.Baseline, c.Kept+c.Left)
	return w
}

// acceptCount accepts a higher count at once. It accepts a lower count only after it was seen twice, with at least the
// duration Apart in between. Edits arrive one by one: a baseline that followed each of them would never detect a wipe.
func (w Wipe) acceptCount(c Count) Wipe {
	switch {
	case c.Kept >= w.Baseline:
		return Wipe{Baseline: c.Kept}
	case w.since.IsZero(), c.Kept != w.lower, c.At.Before(w.since):
		return Wipe{Baseline: w.Baseline, lower: c.Kept, since: c.At}
	case c.At.Sub(w.since) >= Apart:
		return Wipe{Baseline: c.Kept}
	default:
		return Wipe{Baseline: w.Baseline, lower: w.lower, since: w.since}
	}
}

// Next returns when another check can change the result without a change of the count, zero if never. An
// instant in the past means now: the check that was due has failed.
func (w Wipe) Next() time.Time {
	switch {
	case w.Held > 0:
		return w.heldAt.Add(Apart)
	case !w.since.IsZero():
		return w.since.Add(Apart)
	default:
		return time.Time{}
	}
}
