// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"
)

const (
	// RapidWindow is the time window in which repeated reclaims indicate a fault.
	RapidWindow = 10 * time.Minute
	// rapidReclaims is how many reclaims of one machine within the window are rapid. It is also how many are
	// stored.
	rapidReclaims = 3
	// surgeFloor and surgeFraction define how many reclaims of a Cluster within the window are normal: three,
	// or one in ten machines.
	surgeFloor    = 3
	surgeFraction = 10
)

// Recent returns the times within the window around now, oldest first. Times in the future count too, because
// the clock may have been set back.
func Recent(times []time.Time, now time.Time) []time.Time {
	recent := slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return now.Sub(t).Abs() > RapidWindow })
	slices.SortFunc(recent, time.Time.Compare)
	return recent
}

// Reclaimed returns the reclaim times to store after one more reclaim at now. If rapid is true, a person should
// check the schedule: the machine is lent while its owner uses it.
func Reclaimed(times []time.Time, now time.Time) (recent []time.Time, rapid bool) {
	recent = append(Recent(times, now), now)
	if extra := len(recent) - rapidReclaims; extra > 0 {
		recent = recent[extra:]
	}
	return recent, len(recent) == rapidReclaims
}

// Surge reports whether so many reclaims within the window, among so many machines of one Cluster, indicate a
// fault. It delays no reclaim.
func Surge(reclaims, machines int) bool {
	return reclaims > max(surgeFloor, machines/surgeFraction)
}
