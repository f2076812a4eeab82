// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

const (
	// burstWindow is how close together kill switches are one burst.
	burstWindow = 10 * time.Second
	// burstFloor and burstFraction bound the kill switches of one Cluster inside the window
	// that are served at once: ten, or one machine in ten. A smaller Cluster never waits.
	burstFloor    = 10
	burstFraction = 10
	// burstDeadline is how long a kill switch waits at most. A person has turned it on.
	burstDeadline = 30 * time.Second
)

// A Burst watches the kill switches of one Cluster. People turn on one, or a few; a template
// turns on all of them, and a machine that is killed has no time to hand over its work. The
// first of a burst are served at once, and the others when three looks have confirmed that
// they are still on. The zero value has seen none.
type Burst struct{ flips []flip }

// A flip is a kill switch that was turned on.
type flip struct {
	name  string
	seen  time.Time // for the first time
	waits bool
	looks tally
}

// KillSwitches are those of one Cluster at one instant.
type KillSwitches struct {
	// Now is that instant.
	Now time.Time
	// On are the names of all machines whose kill switch is on and that have not started to
	// leave for it, in any order.
	On []string
	// Members is how many machines the Cluster has, as a departure's Plan counts them.
	Members int
	// Shown are those that a list shows which the API server itself has just given. Nothing
	// else confirms, and nobody else is confirmed.
	Shown []string
}

// KillPlan says which kill switches are served.
type KillPlan struct {
	// Served are to be served now, Waiting are not. Both are sorted.
	Served, Waiting []string
	// Next is when to look again, live, though nothing changes; zero is never. One that is not
	// ahead is at once: a live look is due.
	Next time.Time
}

// Judge returns the gate after a look, and which kill switches to serve. One that it lets
// through is let through by each look until it is off or its machine starts to leave.
func (b Burst) Judge(k KillSwitches) (Burst, KillPlan) {
	k.On, k.Shown = sorted(k.On), sorted(k.Shown)
	flips := b.remembered(k)
	var p KillPlan
	for i := range flips {
		f := &flips[i]
		f.look(k)
		switch {
		case !among(k.On, f.name):
		case !f.waits:
			p.Served = append(p.Served, f.name)
		default:
			p.Waiting = append(p.Waiting, f.name)
			p.Next = departure.Sooner(p.Next, f.next())
		}
	}
	slices.Sort(p.Served)
	slices.Sort(p.Waiting)
	return Burst{flips}, p
}

// Until is when a kill switch is served at the latest that waits; zero is that it does not.
func (b Burst) Until(name string) time.Time {
	for _, f := range b.flips {
		if f.waits && f.name == name {
			return f.seen.Add(burstDeadline)
		}
	}
	return time.Time{}
}

// AtOnce is how many kill switches of a Cluster of that size are served at once.
func AtOnce(members int) int { return max(burstFloor, members/burstFraction) }

func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// among reports whether a name is in a sorted list.
func among(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

// remembered are the flips that matter at a look: those that are on, and those of the window
// that were served.
func (b Burst) remembered(k KillSwitches) []flip {
	var flips []flip
	known := map[string]bool{}
	recent := 0
	for _, f := range b.flips {
		if f.seen.After(k.Now) { // The clock was set back.
			f.seen = k.Now
		}
		inside := k.Now.Sub(f.seen) < burstWindow
		if !among(k.On, f.name) && (f.waits || !inside) {
			continue
		}
		if inside {
			recent++
		}
		known[f.name] = true
		flips = append(flips, f)
	}
	for _, name := range k.On {
		if !known[name] {
			flips = append(flips, flip{name: name, seen: k.Now, waits: k.Members >= burstFloor && recent >= AtOnce(k.Members)})
			recent++
		}
	}
	return flips
}

// look looks at one that waits.
func (f *flip) look(k KillSwitches) {
	if !f.waits {
		return
	}
	enough := false
	if among(k.Shown, f.name) {
		f.looks, enough = f.looks.look(k.Now)
	}
	f.waits = !enough && k.Now.Sub(f.seen) < burstDeadline
}

// next is when one that waits may be served, or comes closer to it.
func (f *flip) next() time.Time {
	if f.looks.n == 0 {
		return f.seen
	}
	return departure.Sooner(f.looks.next(), f.seen.Add(burstDeadline))
}
