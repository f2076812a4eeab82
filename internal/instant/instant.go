// SPDX-License-Identifier: Apache-2.0

// Package instant compares instants. The zero value means that there is none.
package instant

import "time"

// Latest returns the later of two instants, the zero value only if both are zero.
func Latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earliest returns the earlier of two instants, the zero value only if both are zero.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
