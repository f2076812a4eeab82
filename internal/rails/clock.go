// SPDX-License-Identifier: Apache-2.0

package rails

import "time"

// MaxSkew is the largest difference between two clocks that counts as equal. Windows open and close on the minute,
// and a Date header has seconds.
const MaxSkew = time.Minute

// Trust is the trust in the clock of this process.
type Trust int

const (
	// Unsampled means that the API server has not answered yet. Nothing is wrong: the warm-up holds all candidates until
	// then.
	Unsampled Trust = iota
	// Trusted means that no witness of package apiclock contradicts the clock.
	Trusted
	// Suspect means that the clock may be wrong. No machine joins or leaves by it. Owners' requests and kill
	// switches do not depend on the clock.
	Suspect
)

// Clock derives the trust from samples. The zero value is Unsampled.
type Clock struct {
	trust       Trust
	goodSamples int // right samples in a row while suspect
}

// Sample returns the Clock after one sample: ahead is how far the clock of this process is ahead by the witness. One
// wrong sample makes it suspect, and three right samples in a row make it sane again.
func (c Clock) Sample(ahead time.Duration) Clock {
	switch {
	case ahead.Abs() > MaxSkew:
		return Clock{trust: Suspect}
	case c.trust == Suspect && c.goodSamples+1 < confirmations:
		return Clock{trust: Suspect, goodSamples: c.goodSamples + 1}
	default:
		return Clock{trust: Trusted}
	}
}

// Trust returns the trust after the latest sample.
func (c Clock) Trust() Trust { return c.trust }
