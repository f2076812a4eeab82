// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"sync/atomic"
)

// HoldFailure is what failed about a hold.
type HoldFailure string

const (
	// HoldUnavailable means that no pod can be held.
	HoldUnavailable HoldFailure = "unavailable"
	// HoldListing means that the pods could not be listed.
	HoldListing HoldFailure = "list"
	// HoldFreezing means that a pod could not be frozen, or not in time.
	HoldFreezing HoldFailure = "freeze"
	// HoldReleasing means that a pod could not be released.
	HoldReleasing HoldFailure = "release"
	// HoldKilling means that a pod could not be killed.
	HoldKilling HoldFailure = "kill"
	// HoldSearching means that it is unknown whether a pod has a device open.
	HoldSearching HoldFailure = "device"
)

var holdFailures = [...]HoldFailure{HoldUnavailable, HoldListing, HoldFreezing, HoldReleasing, HoldKilling, HoldSearching}

// HoldFailures counts failures by reason.
type HoldFailures [len(holdFailures)]atomic.Uint64

// Of returns the counter of a reason.
func (h *HoldFailures) Of(f HoldFailure) *atomic.Uint64 { return &h[slices.Index(holdFailures[:], f)] }

func (h *HoldFailures) write(line func(string, ...any), name string) {
	line("# HELP %s Failures to hold pods, by reason.\n# TYPE %s counter\n", name, name)
	for i, f := range holdFailures {
		line("%s{reason=%q} %d\n", name, string(f), h[i].Load())
	}
}
