// SPDX-License-Identifier: Apache-2.0

package apiclock

import "time"

// Monotonic replaces the monotonic clock of c.
func (c *Clock) Monotonic(elapsed func(from, to time.Time) time.Duration) { c.elapsed = elapsed }
