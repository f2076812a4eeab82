// SPDX-License-Identifier: Apache-2.0

package rails

import (
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

// A Lead is what a manager has learned of one Cluster since it leads. The zero value has
// learned nothing.
type Lead struct {
	// Since is since when it leads.
	Since time.Time
	// Lease is how long another manager may believe to lead that cannot renew its lease.
	Lease time.Duration
	// Synced says that the caches have been filled, and Told that the API server has told its
	// time.
	Synced, Told bool
	// Counted says that the baseline of Wipe is set, or that nobody watches for a wipe.
	Counted bool
}

// WarmUp returns how much there is still to learn at now, and when that changes by time alone;
// zero is never. Nothing but what is to be learned ends it: no time is right for every Cluster.
// All wait for one window, because a machine that started to leave under the manager before
// and was gone at once is in no list.
func (l Lead) WarmUp(now time.Time) (departure.WarmUp, time.Time) {
	cold := l.Since.Add(departure.Window)
	lease := l.Since.Add(l.Lease)
	switch {
	case !l.Synced || !l.Told:
		return departure.Cold, time.Time{}
	case now.Before(cold):
		return departure.Cold, cold
	case !l.Counted:
		return departure.Learning, time.Time{}
	case now.Before(lease):
		return departure.Learning, lease
	default:
		return departure.Warm, time.Time{}
	}
}
