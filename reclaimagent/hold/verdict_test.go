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
	}{
		"NotLoaded":     {"An unknown Config is not one without a hold.", facts{observed: true, requested: true}, leave},
		"NotObserved":   {"A Node that was not read may be part of the control plane.", facts{loaded: true, hold: reclaim.HoldKill, matched: true}, leave},
		"NotAsked":      {"A hold of an earlier Config ends.", facts{loaded: true, hold: reclaim.HoldNone, observed: true, requested: true}, release},
		"EmptyHold":     {"Empty means None.", facts{loaded: true, requested: true}, release},
		"UnknownHold":   {"A value of a later build holds nothing.", facts{loaded: true, hold: "Pause", observed: true, requested: true}, release},
		"NotAskedBlind": {"The end of a hold does not need the Node.", facts{loaded: true}, release},
		"InertBlind":    {"The ConfigMap is deleted with the Node.", facts{loaded: true, inert: true}, leave},
		"Inert":         {"Without patterns there is no hold.", facts{loaded: true, inert: true, observed: true, requested: true}, release},
		"Quiet":         {"Without a request nothing is held.", asked(facts{}), release},
		"Matched":       {"A match freezes before the request.", asked(facts{matched: true}), freeze},
		"Requested":     {"A request that is on the Node kills.", asked(facts{requested: true}), freezeAndKill},
		"Both":          {"A match of a requested machine changes nothing.", asked(facts{requested: true, matched: true}), freezeAndKill},
		"Refused":       {"A refusal ends the hold.", asked(facts{requested: true, matched: true, refused: "x"}), release},
		"Unblocked":     {"The request may need a pod.", asked(facts{matched: true, releasedForRequest: true}), release},
		"Unread":        {"The read may need a pod.", asked(facts{requested: true, releasedForRead: true}), release},
		"UnreadMatched": {"The attempts to deliver the request suffice.", asked(facts{matched: true, releasedForRead: true}), freeze},
		"UnreadBlind":   {"So may the first read.", facts{releasedForRead: true}, release},
		"Delivered":     {"A request on the Node needs no attempt.", asked(facts{requested: true, releasedForRequest: true}), freezeAndKill},
		"FreezeOnly":    {"FreezeOnly never kills.", facts{loaded: true, hold: reclaim.HoldFreezeOnly, observed: true, requested: true}, freeze},
		"Kill":          {"Kill does not kill before the request.", facts{loaded: true, hold: reclaim.HoldKill, observed: true, matched: true}, freeze},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.facts.decide(); got != tc.want {
				t.Errorf("%s\ndecide() = %d, want %d", tc.reason, got, tc.want)
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
