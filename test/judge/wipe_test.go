// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestWipe(t *testing.T) {
	// machineGone is the deletion of a Machine, which waits at the hook, and gone is the deletion of a
	// ScheduledMachine.
	machineGone := func(i int) judge.Record {
		uid, obj := box(i)
		return with(by(person, "delete", obj, uid), deleting, labeled("5spot.finos.org/scheduled-machine", obj.Name), labeled("cluster.x-k8s.io/cluster-name", "lab"),
			func(r *judge.Record) {
				r.At, r.Got.Annotations = begin, map[string]string{"pre-drain.delete.hook.machine.cluster.x-k8s.io/5spot": ""}
			})
	}
	scheduledGone := func(i int) judge.Record {
		sm := office
		_, obj := box(i)
		sm.Name = obj.Name
		return with(by(person, "delete", sm, "s"+sm.Name), deleting, func(r *judge.Record) { r.At = begin })
	}
	all := func(n int, gone func(int) judge.Record) (records []judge.Record) {
		records = boxes(12)
		for i := range n {
			records = append(records, gone(i))
		}
		return records
	}
	const early = "box-0 started to leave 10s after nearly all machines had been deleted"
	judged(t, judge.Wipe, map[string]ruleCase{
		"Confirmed": {
			reason:  "Three looks take longer than that.",
			records: append(all(12, machineGone), leaves(0, 20*time.Second, "unscheduled")),
			judged:  1,
		},
		"Machines": {
			reason:  "Nobody has confirmed it.",
			records: append(all(12, machineGone), leaves(0, 10*time.Second, "unscheduled")),
			judged:  1, broken: []string{early},
		},
		"ScheduledMachines": {
			reason:  "They are as good as their Machines.",
			records: append(all(11, scheduledGone), leaves(0, 10*time.Second, "unscheduled")),
			judged:  1, broken: []string{early},
		},
		"TwoOfTwelveStay": {
			reason:  "That is one in ten.",
			records: append(all(10, machineGone), leaves(0, 10*time.Second, "unscheduled")),
		},
		"NotSeenYet": {
			reason:  "A manager that is busy sees the first of them first.",
			records: append(all(12, machineGone), leaves(0, 6*time.Second, "unscheduled")),
		},
		"OthersDoNotWait": {
			reason:  "Owners do not, and who was told when does not.",
			records: append(all(12, machineGone), leaves(0, 10*time.Second, "exempt"), leaves(1, 10*time.Second, "scheduled")),
		},
		"Few": {
			reason: "Of few machines nearly all leave on any day.",
			records: append(slices.DeleteFunc(all(12, machineGone), func(r judge.Record) bool { return len(r.Object.Name) == len("box-10") || r.Object.Name == "box-9" }),
				leaves(0, 10*time.Second, "unscheduled")),
		},
	})
}
