// SPDX-License-Identifier: Apache-2.0

// Package rails implements safety rails as pure values: the wipe quarantine, the warm-up, the trust in the
// clock, and the announcement of a window's end. A rail delays a decision but does not change it. The package
// imports no Kubernetes package, and gets the time as an input.
//
// Each rail is a value that its caller stores, per Cluster or per manager. A check returns the next value, and
// no state is shared. A failed check must not be passed in: it neither confirms nor resets.
package rails

import "time"

const (
	// Apart is the minimum time between two checks that count. An error in one check may still be present a
	// moment later.
	Apart = 10 * time.Second
	// confirmations is how many checks in a row confirm an unlikely result.
	confirmations = 3
)
