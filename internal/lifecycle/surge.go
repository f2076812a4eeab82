// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"
)

const (
	// RapidWindow is how close together reclaims are a sign of a fault.
	RapidWindow = 10 * time.Minute
	// rapidReclaims is how many reclaims of one machine inside the window are rapid.
	// More are not remembered.
	rapidReclaims = 3
	// surgeFloor and surgeFraction bound the reclaims of one Cluster inside the window
	// that are nothing special: three, or one machine in ten.
	surgeFloor    = 3
	surgeFraction = 10
)

// Recent returns those of times that are inside the window at now, oldest first.
// A clock that was set back leaves times ahead; those count as well, as long as
// the window is.
func Recent(times []time.Time, now time.Time) []time.Time {
	recent := slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return now.Sub(t).Abs() > RapidWindow })
	slices.SortFunc(recent, time.Time.Compare)
	return recent
}

// Reclaimed returns the times of a machine's reclaims to remember after one more
// at now, and whether they follow each other so fast that somebody should look:
// a machine that is lent while its owner works does no good to either.
func Reclaimed(times []time.Time, now time.Time) (remember []time.Time, rapid bool) {
	remember = append(Recent(times, now), now)
	if extra := len(remember) - rapidReclaims; extra > 0 {
		remember = remember[extra:]
	}
	return remember, len(remember) == rapidReclaims
}

// Surge reports whether so many reclaims inside the window, among so many
// machines of one Cluster, are a sign of a fault. It holds nobody up.
func Surge(reclaims, machines int) bool {
	return reclaims > max(surgeFloor, machines/surgeFraction)
}
