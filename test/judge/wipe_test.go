// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestWipe(t *testing.T) {
	machineGone := func(i int) judge.Record { return held(i, 0) }
	scheduledGone := func(i int) judge.Record { return with(scheduledBox(i, person, "delete"), deleting, at(0)) }
	all := func(n int, gone func(int) judge.Record, more ...judge.Record) []judge.Record {
		return slices.Concat(boxes(12), each(0, n, gone), more)
	}
	const early = "box-0 started to leave 10s after nearly all machines had been deleted"
	judged(t, judge.Wipe, map[string]ruleCase{
		"Confirmed": {
			reason:  "Three checks take longer than that.",
			records: all(12, machineGone, released(0, 20*time.Second)),
			judged:  1,
		},
		"Machines": {
			reason:  "The manager has not confirmed it.",
			records: all(12, machineGone, released(0, 10*time.Second)),
			judged:  1, broken: []string{early},
		},
		"ScheduledMachines": {
			reason:  "Their deletion deletes their Machines.",
			records: all(11, scheduledGone, leaves(0, 10*time.Second)),
			judged:  1, broken: []string{early},
		},
		"TwoOfTwelveStay": {
			reason:  "That is one in ten.",
			records: all(10, machineGone, released(0, 10*time.Second)),
		},
		"TwoThatNeverRanStay": {
			reason: "Machines that never had a Node do not count.",
			records: slices.Concat(boxes(12), each(12, 8, func(i int) judge.Record {
				return with(boxes(i + 1)[i], func(r *judge.Record) { r.Got.HasNode = false })
			}), each(0, 12, machineGone), []judge.Record{released(0, 10*time.Second)}),
			judged: 1, broken: []string{early},
		},
		"NotSeenYet": {
			reason:  "A manager that is busy sees the first deletion first.",
			records: all(12, machineGone, released(0, 6*time.Second)),
		},
		"OthersDoNotWait": {
			reason:  "Kill switches do not wait, nor do announced ends.",
			records: all(11, scheduledGone, with(killed(0, time.Second), deleting), announced(11, 9*time.Second), leaves(0, 10*time.Second), leaves(11, 10*time.Second)),
		},
		"Few": {
			reason:  "Nearly all of a few machines leave on any day.",
			records: slices.Concat(boxes(9), each(0, 9, machineGone), []judge.Record{released(0, 10*time.Second)}),
		},
	})
}
