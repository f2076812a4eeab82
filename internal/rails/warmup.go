// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// WarmUp is the stage of the warm-up after a manager became leader.
type WarmUp int

// The stages of a warm-up, the last one first.
const (
	// Warm means that the warm-up is over.
	Warm WarmUp = iota
	// Learning means that another manager may still act as leader. It holds only unscheduled departures.
	Learning
	// Cold means that starts under the previous leader are not known yet. It holds all departures.
	Cold
)

// A Lead is what a manager has learned since it became leader. The zero value has learned nothing.
type Lead struct {
	// Since is when it became leader, or began to serve the Cluster.
	Since time.Time
	// Lease is the lease duration: for so long another manager that cannot renew its lease may still act as
	// leader.
	Lease time.Duration
	// Sampled reports that the API server has responded with its time.
	Sampled bool
}

// WarmUp returns the stage at now, and when it changes by time alone, zero if it does not. All departures wait
// for one Window: a machine that left under the previous leader and is already gone is in no list.
func (l Lead) WarmUp(now time.Time) (WarmUp, time.Time) {
	cold := l.Since.Add(departurecap.Window)
	lease := l.Since.Add(l.Lease)
	switch {
	case !l.Sampled:
		return Cold, time.Time{}
	case now.Before(cold):
		return Cold, cold
	case now.Before(lease):
		return Learning, lease
	default:
		return Warm, time.Time{}
	}
}
