// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

// notice is how long before the end of a window the status must have announced that end.
const notice = 10 * time.Minute

// An Announcement is the end of a window as the status announced it. It was computed earlier, so it is
// independent of a clock, time zone or spec that is wrong now. The zero value announces nothing.
type Announcement struct {
	// End is the announced end of the window.
	End time.Time
	// Since is when the status first announced it.
	Since time.Time
	// Generation is the generation of the spec from which it was computed.
	Generation int64
}

// Covers reports whether the end of a window in the spec of this generation was announced in time. If it was,
// the departure is scheduled, otherwise unscheduled.
func (a Announcement) Covers(end time.Time, generation int64) bool {
	return !a.Since.IsZero() && a.End.Equal(end) && a.Generation == generation && !a.Since.After(end.Add(-notice))
}
