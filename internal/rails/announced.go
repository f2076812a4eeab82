// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

// notice is how long before the end of a window the status must have announced that end.
const notice = 10 * time.Minute

// Announced reports whether the status announced the end of a window in time. since is when it first announced this end,
// from the spec with the generation observed. The announcement was computed earlier, so it is independent of a clock, a
// time zone or a spec that is wrong now. A departure at an announced end is scheduled, otherwise unscheduled.
func Announced(end, since time.Time, observed, generation int64) bool {
	return !since.IsZero() && observed == generation && !since.After(end.Add(-notice))
}
