// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

// mostSkew is by how much our clock and the API server's may differ. Windows open and close
// on the minute, and the API server tells its time to the second.
const mostSkew = time.Minute

// Trust says what to make of our clock.
type Trust int

const (
	// Untold means that the API server has not told its time yet. Nothing is wrong: whoever
	// asks waits for its first answer, as in a warm-up, and lets no machine leave by what our
	// clock says until then.
	Untold Trust = iota
	// Sane means that both agree.
	Sane
	// Suspect means that they do not, and nobody knows which of them is wrong. By what our
	// clock says no machine leaves. Owners and kill switches do not ask the clock.
	Suspect
)

// A Clock compares our clock with the API server's. Whoever decides by the clock takes a
// sample first: between two samples it may be set. The zero value is Untold.
type Clock struct {
	trust Trust
	sane  int // samples in a row, while it is suspect
}

// Sample returns the gate after an answer of the API server: ahead is our time at that moment
// less its own, negative if ours is behind. After one sample that is wrong three in a row have
// to be right. An answer without a time is no sample.
func (c Clock) Sample(ahead time.Duration) Clock {
	switch {
	case ahead.Abs() > mostSkew:
		return Clock{trust: Suspect}
	case c.trust == Suspect && c.sane+1 < confirmations:
		return Clock{trust: Suspect, sane: c.sane + 1}
	default:
		return Clock{trust: Sane}
	}
}

// Trust says what to make of our clock now.
func (c Clock) Trust() Trust { return c.trust }
