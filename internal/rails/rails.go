// SPDX-License-Identifier: Apache-2.0

// Package rails answers one question: may what was decided be carried out already? It knows
// nothing about Kubernetes, and the time is a fact like any other.
//
// Each gate is a value that its caller keeps, one for each Cluster or one for a manager.
// What was seen makes another value of it; nothing is shared. A look that failed is none: the
// gate stays as it was. Unknown is not zero, and it is not a confirmation.
package rails

import "time"

const (
	// Apart is how far two looks are apart at least if the second is to confirm the first:
	// what is wrong with the first may still be wrong a moment later.
	Apart = 10 * time.Second
	// confirmations is how many looks in a row it takes to believe what is hard to believe.
	confirmations = 3
)

// A tally counts looks that say the same. The zero value has seen none.
type tally struct {
	n    int
	last time.Time // that counted
}

// look counts a look at now, if it is far enough from the last one that counted, and reports
// whether there are enough. A clock that was set back makes nobody wait for longer than Apart.
func (t tally) look(now time.Time) (tally, bool) {
	switch {
	case t.n > 0 && now.Before(t.last):
		t.last = now
	case t.n == 0 || now.Sub(t.last) >= Apart:
		t = tally{t.n + 1, now}
	}
	return t, t.n >= confirmations
}

// next is when another look counts.
func (t tally) next() time.Time { return t.last.Add(Apart) }
