// SPDX-License-Identifier: Apache-2.0

package awselb

import (
	"slices"
	"time"
)

// A change is a registration or deregistration of a target.
type change struct {
	at         time.Time
	registered bool
}

// A history has the changes of a target, the oldest first. It can be read as of any instant, to simulate delayed reads.
type history struct{ changes []change }

// at returns the last change up to an instant, and false if there was none.
func (h *history) at(instant time.Time) (change, bool) {
	for _, c := range slices.Backward(h.changes) {
		if !c.at.After(instant) {
			return c, true
		}
	}
	return change{}, false
}

// add records a change, unless it has no effect.
func (h *history) add(at time.Time, registered bool) {
	last, known := h.at(at)
	if known && last.registered == registered || !known && !registered {
		return
	}
	h.changes = append(h.changes, change{at, registered})
}
