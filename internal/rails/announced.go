// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

// notice is how long before the end of a window its owner must have been able to read of it.
const notice = 10 * time.Minute

// An Announcement is what the status said of the end of a window. It was written at another
// time, by another look at the schedule: a clock, a zone or an edit that is wrong now was not
// wrong then. The zero value announces nothing.
type Announcement struct {
	// End is the end of the window that was announced.
	End time.Time
	// Since is since when the status has said so.
	Since time.Time
	// Generation is that of the spec from which it was worked out.
	Generation int64
}

// Covers reports whether the end of a window that the spec of this generation has was
// announced in time: a departure for it is scheduled, and unscheduled otherwise.
func (a Announcement) Covers(end time.Time, generation int64) bool {
	return !a.Since.IsZero() && a.End.Equal(end) && a.Generation == generation && !a.Since.After(end.Add(-notice))
}
