// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"time"

	"golang.org/x/sys/unix"
)

// Age returns the time since the kernel sent the event, zero if unknown.
func (e *Event) Age() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil || e.Time == 0 {
		return 0
	}
	return max(time.Duration(now.Nano())-time.Duration(e.Time), 0) //nolint:gosec // nanoseconds since boot fit for 292 years
}
