// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// box is the i-th machine of the Cluster lab.
func box(i int) (uid string, obj judge.Object) {
	obj = lab
	obj.Name = fmt.Sprintf("box-%d", i)
	return obj.Name, obj
}

// boxes are the creations of n machines, long before the test.
func boxes(n int) []judge.Record {
	var records []judge.Record
	for i := range n {
		uid, obj := box(i)
		records = append(records, with(by(manager, "patch", obj, uid), created, labeled("5spot.finos.org/scheduled-machine", obj.Name), labeled("cluster.x-k8s.io/cluster-name", "lab"),
			func(r *judge.Record) { r.At = begin.Add(-time.Hour) }))
	}
	return records
}

// leaves is the start of a departure of the i-th machine.
func leaves(i int, after time.Duration, lane string) judge.Record {
	uid, obj := box(i)
	at := begin.Add(after)
	record := fmt.Sprintf(`{"lane":%q,"reason":"WindowClosed","since":%q,"machineUID":%q,"actionID":%q}`, lane, at.Format(time.RFC3339), uid, uid)
	return with(by(manager, "patch", obj, uid), sets(departure, record),
		labeled("5spot.finos.org/scheduled-machine", obj.Name), labeled("cluster.x-k8s.io/cluster-name", "lab"),
		func(r *judge.Record) { r.At = at })
}

// announced is a status write that announces when the i-th machine leaves.
func announced(i int, end time.Time) judge.Record {
	sm := office
	sm.Name = fmt.Sprintf("box-%d", i)
	return with(by(manager, "patch", sm, "s"+sm.Name), func(r *judge.Record) {
		r.Subresource, r.Got.NextCleanup, r.At = "status", end, begin.Add(-time.Minute)
	})
}

func TestCap(t *testing.T) {
	join := func(records []judge.Record, more ...judge.Record) []judge.Record { return append(records, more...) }
	elsewhere := func(r *judge.Record) { labeled("cluster.x-k8s.io/cluster-name", "other")(r) }
	deleted := func(r *judge.Record) {
		r.User, r.Verb, r.Sent = person, "delete", &judge.Sent{UID: r.Sent.UID}
		r.Got.Annotations, r.Got.Deleting = nil, true
	}
	held := func(r *judge.Record) {
		r.Got.Annotations = map[string]string{"pre-drain.delete.hook.machine.cluster.x-k8s.io/5spot": ""}
	}
	judged(t, func() judge.Rule { return judge.Cap(50_000) }, map[string]ruleCase{
		"OneOfFew": {
			reason:  "One may always leave.",
			records: join(boxes(3), leaves(0, 0, "scheduled"), leaves(1, 10*time.Second, "scheduled")),
			judged:  2,
		},
		"TwoOfFew": {
			reason:  "A twentieth of three is none, and one may leave.",
			records: join(boxes(3), leaves(0, 0, "scheduled"), leaves(1, 9999*time.Millisecond, "unscheduled")),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"TwoOfForty": {
			reason:  "A twentieth of forty are two.",
			records: join(boxes(40), leaves(0, 0, "scheduled"), leaves(1, time.Second, "scheduled")),
			judged:  2,
		},
		"ThreeOfForty": {
			reason:  "Those that have just started still count.",
			records: join(boxes(40), leaves(0, 0, "scheduled"), leaves(1, time.Second, "scheduled"), leaves(2, 2*time.Second, "scheduled")),
			judged:  3, broken: []string{"3 of 40 machines started to leave within 10s"},
		},
		"ThirtyNine": {
			reason:  "The part of a machine is none.",
			records: join(boxes(39), leaves(0, 0, "scheduled"), leaves(1, time.Second, "scheduled")),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"Exempt": {
			reason:  "Owners do not wait.",
			records: join(boxes(3), leaves(0, 0, "exempt"), leaves(1, 0, "exempt"), leaves(2, 0, "scheduled")),
			judged:  1,
		},
		"OtherCluster": {
			reason:  "Each Cluster has a limit of its own.",
			records: join(boxes(3), leaves(0, 0, "scheduled"), with(leaves(1, 0, "scheduled"), elsewhere)),
			judged:  2,
		},
		"SameRecordAgain": {
			reason:  "Writing a record again starts nothing.",
			records: join(boxes(3), leaves(0, 0, "scheduled"), with(leaves(0, 0, "scheduled"), func(r *judge.Record) { r.At = begin.Add(time.Second) })),
			judged:  1,
		},
		"PutOffForTenMinutes": {
			reason:  "However late a machine is, it does not start beyond the limit.",
			records: join(boxes(3), announced(1, begin), leaves(0, 10*time.Minute, "scheduled"), leaves(1, 10*time.Minute, "scheduled")),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"ASharedWindowEnd": {
			reason:  "The limit of announced ends does not shrink with the fleet.",
			records: join(boxes(40), leaves(0, 0, "scheduled"), leaves(1, 0, "scheduled"), leaves(2, 10*time.Second, "scheduled"), leaves(3, 10*time.Second, "scheduled")),
			judged:  4,
		},
		"AnEditDuringASharedWindowEnd": {
			reason:  "That of others does.",
			records: join(boxes(40), leaves(0, 0, "scheduled"), leaves(1, 0, "scheduled"), leaves(2, 10*time.Second, "unscheduled"), leaves(3, 10*time.Second, "unscheduled")),
			judged:  4, broken: []string{"2 of 38 machines started to leave within 10s"},
		},
		"PutOffUnscheduled": {
			reason:  "The same for a departure that was not announced.",
			records: join(boxes(3), announced(1, begin), leaves(0, time.Hour, "unscheduled"), leaves(1, time.Hour, "unscheduled")),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"DeletedMachinesDoNotCount": {
			reason:  "A fleet that has shrunk may lose fewer.",
			records: join(boxes(40), with(leaves(0, -2*time.Minute, "exempt"), deleted), leaves(1, 0, "scheduled"), leaves(2, time.Second, "scheduled")),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"DeletedMachinesThatAreHeldCount": {
			reason:  "Somebody deleted it, and it runs until it is its turn.",
			records: join(boxes(40), with(leaves(0, -2*time.Minute, "exempt"), deleted, held), leaves(1, 0, "scheduled"), leaves(2, time.Second, "scheduled")),
			judged:  2,
		},
	})
}

// TestCapNamesAllThatStarted checks that a break lists its evidence.
func TestCapNamesAllThatStarted(t *testing.T) {
	ruling, err := judge.Run(placed(append(boxes(2), leaves(0, 0, "scheduled"), leaves(1, time.Second, "scheduled"))), judge.Cap(50_000))
	if err != nil {
		t.Fatal(err)
	}
	if len(ruling.Breaks) != 1 || strings.Join(ruling.Breaks[0].IDs, "") != "cd" {
		t.Errorf("got %v", ruling.Breaks)
	}
}
