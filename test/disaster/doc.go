// SPDX-License-Identifier: Apache-2.0

// Package disaster tests the safety rails with real components: two replicas of the released manager, and a fleet of
// machines. Mistakes and outages hit the fleet one after the other, and are undone. test/storm has many more of them,
// in simulated time.
package disaster
