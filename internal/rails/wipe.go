// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

const (
	// wipeFloor is the smallest Cluster that is watched: of few machines nearly all leave
	// on any day.
	wipeFloor = 10
	// wipeFraction is what is left at least of a Cluster that is not wiped: one in ten.
	wipeFraction = 10
)

// A Wipe watches how many machines of one Cluster should stay. If nearly all of them seem to
// be unwanted all at once, more often than not a list was cut short, a template was wrong or
// somebody deleted more than they meant to: it takes three looks in a row to be believed.
//
// A manager that starts sets Baseline to how many machines there are by what was reported
// last: else it would take a wipe that came with the restart for what has always been.
type Wipe struct {
	// Baseline is how many machines should stay by the last count that was believed.
	Baseline int
	// Held is how many looks in a row have seen a wipe that is not believed yet; zero is that
	// nothing is held.
	Held int

	heldAt time.Time // the last look that Held counts
	lower  int       // a count below Baseline
	since  time.Time // of lower; zero is none
}

// A Count is a look at all machines of a Cluster. One that is suspected to be a wipe is judged
// only if a list that the API server itself has just given says the same.
type Count struct {
	// At is when the list was asked for.
	At time.Time
	// Kept is how many machines there are without those that are to leave unscheduled.
	// One whose announced window has ended is kept until it starts to leave.
	Kept int
	// Left is how many have started to leave since the look before, in whatever lane: nobody
	// has to explain them.
	Left int
}

// A WipeVerdict is what a look makes of a count.
type WipeVerdict string

// The verdicts.
const (
	// Believed means that nothing is held.
	Believed WipeVerdict = "Believed"
	// Quarantined means that no unscheduled departure may start.
	Quarantined WipeVerdict = "Quarantined"
	// Confirmed means that a wipe was seen often enough, and nothing is held any more.
	Confirmed WipeVerdict = "Confirmed"
)

// Suspects reports whether a look with this count would see a wipe.
func (w Wipe) Suspects(c Count) bool {
	baseline := w.Baseline - c.Left
	return baseline >= wipeFloor && c.Kept*wipeFraction < baseline
}

// Judge returns the gate after a look, and its verdict.
func (w Wipe) Judge(c Count) (Wipe, WipeVerdict) {
	suspected := w.Suspects(c)
	w.Baseline, w.lower = max(0, w.Baseline-c.Left), max(0, w.lower-c.Left)
	if !suspected {
		return w.settle(c), Believed
	}
	seen, enough := tally{w.Held, w.heldAt}.look(c.At)
	if enough {
		return Wipe{Baseline: c.Kept}, Confirmed
	}
	return Wipe{Baseline: w.Baseline, Held: seen.n, heldAt: seen.last}, Quarantined
}

// Grow believes a count only if it is higher: who looks does not know of all machines yet.
func (w Wipe) Grow(c Count) Wipe {
	w.Baseline = max(w.Baseline, c.Kept+c.Left)
	return w
}

// settle believes a count at once if it is higher. A lower one has to be seen twice: edits
// come one by one, and who follows each of them never sees a wipe.
func (w Wipe) settle(c Count) Wipe {
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

// Next is when another look says more than the last one, though nothing changes; zero is
// never. One that has passed is at once: the look that was due has failed.
func (w Wipe) Next() time.Time {
	switch {
	case w.Held > 0:
		return tally{w.Held, w.heldAt}.next()
	case !w.since.IsZero():
		return w.since.Add(Apart)
	default:
		return time.Time{}
	}
}
