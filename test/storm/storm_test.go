// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"cmp"
	"flag"
	"slices"
	"testing"
	"time"
)

// machines is the size of the fleet. A thousand take minutes for all storms.
var machines = flag.Int("machines", 0, "have all storms hit so many `machines`; by default a few hit forty")

// seed determines the order of events.
var seed = flag.Uint64("seed", 1, "have things happen in another order")

// few is the default size of the fleet, and sample are the storms that then run.
const few = 40

var sample = []string{"AllSchedulesAreWiped", "SomebodyDeletesHalfOfTheMachines", "FiftyOwnersAskWhileAllWait"}

// TestTheRailsHold runs every storm on a fleet.
func TestTheRailsHold(t *testing.T) {
	for _, in := range inputs {
		t.Run(in.name, func(t *testing.T) {
			if *machines == 0 && !slices.Contains(sample, in.name) {
				t.Skip("make test-judge has all storms")
			}
			t.Parallel()
			broken := runStory(t, in, cmp.Or(*machines, few), 1, "")
			if in.known != "" && len(broken) > 0 {
				t.Skipf("known: %s: %d times, first: %s", in.known, len(broken), broken[0])
			}
			if in.known != "" {
				t.Logf("a known defect did not show: %s", in.known)
			}
			for _, b := range broken[:min(5, len(broken))] {
				t.Error(b)
			}
			if len(broken) > 5 {
				t.Errorf("and %d more", len(broken)-5)
			}
		})
	}
}

// TestSmallClustersAreOneFleet has machines leave that are each in their own Cluster. Together, no more of them may start
// within a window than of one Cluster of that size.
func TestSmallClustersAreOneFleet(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"AllWindowsEndAtFive", "AllSchedulesAreWiped", "AWipeIsUndoneBeforeItIsConfirmed", "HalfAreDeleted", "HalfOfTheSchedulesAreWiped", "ARestartEveryTwelveSecondsAfterFive", "AWebhookRefusesDeletionsOverARestart"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := cmp.Or(*machines, few)
			for _, b := range runStory(t, inputs[slices.IndexFunc(inputs, func(in input) bool { return in.name == name })], size, size, "") {
				t.Error(b)
			}
		})
	}
}

// runStory runs a story on a fleet in some Clusters with a rail cut, and returns the broken rules.
func runStory(t *testing.T, in input, size, clusters int, cut string) []string {
	t.Helper()
	w := newWorld(t, size, clusters, cut)
	in.do(w)
	o := in.outcome
	switch {
	case in.all:
		o.leaves = w.all()
	case in.half:
		o.leaves = w.half()
	case in.some != nil:
		o.leaves = in.some(w)
	}
	w.until(w.now.Add(longest), func() bool {
		for _, i := range o.leaves {
			if _, left := w.left[name(i)]; !left {
				return false
			}
		}
		return true
	})
	w.run(afterwards)
	return w.hold(o)
}

// longest bounds the wait of the last machine of a fleet. afterwards is the time after its departure in which nothing
// may happen.
const (
	longest    = 2 * time.Hour
	afterwards = 12 * time.Minute
)

// TestEachRailIsMissed cuts one rail after the other: a storm must break a rule without it.
func TestEachRailIsMissed(t *testing.T) {
	if *machines == 0 {
		t.Skip("make test-judge cuts rails")
	}
	for cut, name := range map[string]string{
		"cap":                     "HalfOfTheSchedulesAreWiped",
		"wipe guard":              "AllSchedulesAreWiped",
		"warm-up":                 "ARestartEveryThreeSecondsAndMachinesAreGoneAtOnce",
		"machine hook's question": "SomebodyDeletesHalfOfTheMachines",
	} {
		t.Run(cut, func(t *testing.T) {
			at := slices.IndexFunc(inputs, func(in input) bool { return in.name == name })
			broken := runStory(t, inputs[at], few, 1, cut)
			if len(broken) == 0 {
				t.Errorf("nobody notices in %s that there is none", name)
			} else {
				t.Logf("%d times, first: %s", len(broken), broken[0])
			}
		})
	}
}
