// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"
)

var noon = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)

func TestBeforeDelete(t *testing.T) {
	box := machine{Name: "box", Grace: 5 * time.Minute}
	for name, tc := range map[string]struct {
		reason   string
		after    time.Duration
		machines []machine
		want     string
	}{
		"Nothing":  {"A Cluster without borrowed machines goes at once.", 0, nil, ""},
		"Waits":    {"Machines leave before their Cluster.", 0, []machine{box}, "waiting for ScheduledMachines to leave: box"},
		"Bounded":  {"A machine that cannot be taken down does not keep the Cluster for ever.", 10 * time.Minute, []machine{box}, ""},
		"JustNot":  {"The bound is the budget of the departure and what it takes to clean up.", 10*time.Minute - time.Second, []machine{box}, "waiting for ScheduledMachines to leave: box"},
		"Longest":  {"The longest budget counts.", 10 * time.Minute, []machine{box, {Name: "desk", Grace: time.Hour}}, "waiting for ScheduledMachines to leave: box, desk"},
		"NoBudget": {"A Machine without its ScheduledMachine has what it takes to clean up.", 5 * time.Minute, []machine{{Name: "box"}}, ""},
		"Sorted": {
			"The message is the same while nothing changes, and short.",
			0,
			[]machine{{Name: "d"}, {Name: "b"}, {Name: "c"}, {Name: "a"}},
			"waiting for ScheduledMachines to leave: a, b, c and others",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := beforeDelete(noon.Add(tc.after), noon, tc.machines); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestBeforeUpgrade(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		emergency time.Time
		want      string
	}{
		"Calm":    {"A machine that stays, or departs by its schedule, holds nothing.", time.Time{}, ""},
		"Now":     {"An emergency holds the upgrade.", noon, "waiting for ScheduledMachines that leave in an emergency: box"},
		"Ahead":   {"Clocks of two replicas differ.", noon.Add(time.Second), "waiting for ScheduledMachines that leave in an emergency: box"},
		"JustNot": {"It does so for ten minutes.", noon.Add(time.Second - maxHold), "waiting for ScheduledMachines that leave in an emergency: box"},
		"Bounded": {"And no longer, whatever becomes of the machine.", noon.Add(-maxHold), ""},
	} {
		t.Run(name, func(t *testing.T) {
			machines := []machine{{Name: "calm"}, {Name: "box", Emergency: tc.emergency}}
			if got := beforeUpgrade(noon, machines); got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
