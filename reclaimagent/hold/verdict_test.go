// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"slices"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

func TestDecide(t *testing.T) {
	asked := func(f facts) facts { f.loaded, f.hold, f.observed = true, reclaim.HoldFreeze, true; return f }
	cases := map[string]struct {
		reason string
		facts  facts
		want   verdict
		stop   verdict
	}{
		"NotLoaded":     {"An unknown Config is not one without a hold.", facts{observed: true, requested: true}, leave, leave},
		"NotObserved":   {"A Node that was not read may be part of the control plane.", facts{loaded: true, hold: reclaim.HoldKill, matched: true}, leave, leave},
		"NotAsked":      {"A hold of an earlier Config ends.", facts{loaded: true, hold: reclaim.HoldNone, observed: true, requested: true}, release, release},
		"EmptyHold":     {"Empty means None.", facts{loaded: true, requested: true}, release, release},
		"UnknownHold":   {"A value of a later build holds nothing.", facts{loaded: true, hold: "Pause", observed: true, requested: true}, release, release},
		"NotAskedBlind": {"The end of a hold does not need the Node.", facts{loaded: true}, release, release},
		"InertBlind":    {"The ConfigMap is deleted with the Node.", facts{loaded: true, inert: true}, leave, leave},
		"Inert":         {"Without patterns there is no hold.", facts{loaded: true, inert: true, observed: true, requested: true}, release, release},
		"Quiet":         {"Without a request nothing is held.", asked(facts{}), release, release},
		"Matched":       {"A match freezes before the request; only a request outlives the agent.", asked(facts{matched: true}), freeze, release},
		"Requested":     {"A request that is on the Node kills and outlives the agent.", asked(facts{requested: true}), freezeAndKill, freezeAndKill},
		"Both":          {"A match of a requested machine changes nothing.", asked(facts{requested: true, matched: true}), freezeAndKill, freezeAndKill},
		"Refused":       {"A refusal ends the hold.", asked(facts{requested: true, matched: true, refused: "x"}), release, release},
		"Unblocked":     {"The request may need a pod.", asked(facts{matched: true, unblocked: true}), release, release},
		"Delivered":     {"A request on the Node needs no attempt.", asked(facts{requested: true, unblocked: true}), freezeAndKill, freezeAndKill},
		"FreezeOnly":    {"FreezeOnly never kills.", facts{loaded: true, hold: reclaim.HoldFreezeOnly, observed: true, requested: true}, freeze, freeze},
		"Kill":          {"Kill does not kill before the request.", facts{loaded: true, hold: reclaim.HoldKill, observed: true, matched: true}, freeze, release},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.facts.decide(); got != tc.want {
				t.Errorf("%s\ndecide() = %d, want %d", tc.reason, got, tc.want)
			}
			if got := tc.facts.stopped(); got != tc.stop {
				t.Errorf("%s\nstopped() = %d, want %d", tc.reason, got, tc.stop)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	for _, tc := range []struct {
		reason        string
		state         podState
		hold, release []change
	}{
		{"The mark is first: a crash leaves no freeze without a mark.", podState{}, []change{setMark, setFrozen}, nil},
		{"A crash between mark and freeze.", podState{marked: true}, []change{setFrozen}, []change{clearMark}},
		{"The mark is last: a crash leaves no freeze without a mark.", podState{marked: true, frozen: true}, nil, []change{clearFrozen, clearMark}},
		{"Something else froze it.", podState{frozen: true}, nil, nil},
	} {
		if got := tc.state.holdChanges(); !slices.Equal(got, tc.hold) {
			t.Errorf("%s\nholdChanges() = %v, want %v", tc.reason, got, tc.hold)
		}
		if got := tc.state.releaseChanges(); !slices.Equal(got, tc.release) {
			t.Errorf("%s\nreleaseChanges() = %v, want %v", tc.reason, got, tc.release)
		}
	}
}
