// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestLines(t *testing.T) {
	line := func(kind, outcome, uid string) judge.Record {
		return judge.Record{Object: office, Line: &judge.Line{Kind: kind, Machine: "farm/office", Outcome: outcome, UID: uid}}
	}
	made := with(by(manager, "create", infra, "i"), created)
	deleted := with(by(manager, "delete", lab, "m"), deleting)
	nodeGone := by(manager, "delete", node, "n")
	judged(t, func() judge.Rule { return judge.Lines(true) }, map[string]ruleCase{
		"Both": {
			reason:  "Each write has its line, in either order.",
			records: []judge.Record{made, line("Join", "success", "i"), line("Depart", "success", "m"), deleted, nodeGone, line("NodePatch", "success", "n")},
			judged:  6,
		},
		"WriteWithoutLine": {
			reason:  "Nobody could tell who took the machine.",
			records: []judge.Record{deleted},
			judged:  1, broken: []string{"the object was deleted, and the manager's audit log has no line of it"},
		},
		"LineOfAnotherKind": {
			reason:  "That it was made does not say that it was deleted.",
			records: []judge.Record{with(by(manager, "patch", lab, "m"), created), line("Join", "success", "m"), deleted},
			judged:  3, broken: []string{"the object was deleted, and the manager's audit log has no line of it"},
		},
		"LineWithoutWrite": {
			reason:  "A success that nobody saw is none.",
			records: []judge.Record{line("Depart", "success", "m")},
			judged:  1, broken: []string{"a line says that object m was written, and no API server has that"},
		},
		"RefusedIsNoWrite": {
			reason:  "The line of a success needs a write that was accepted.",
			records: []judge.Record{with(deleted, refused), line("Depart", "success", "m")},
			judged:  1, broken: []string{"a line says that object m was written, and no API server has that"},
		},
		"AnswerNotHeard": {
			reason:  "The line tells of a try; that is enough for a write.",
			records: []judge.Record{deleted, line("Depart", "api_error", "m")},
			judged:  1,
		},
		"CreationNotHeard": {
			reason:  "Who heard no answer knows no UID; the machine and the time tell.",
			records: []judge.Record{made, line("Join", "canceled", "")},
			judged:  1,
		},
		"CreationOfAnother": {
			reason:  "It tells of another machine.",
			records: []judge.Record{made, {Object: office, Line: &judge.Line{Kind: "Join", Machine: "farm/off", Outcome: "canceled"}}},
			judged:  1, broken: []string{"the object was created, and the manager's audit log has no line of it"},
		},
		"Suppressed": {
			reason:  "Nothing was sent, so there is no write; and a write is not excused by it.",
			records: []judge.Record{line("Depart", "suppressed", "m"), line("Join", "dryrun", "i"), deleted},
			judged:  1, broken: []string{"the object was deleted, and the manager's audit log has no line of it"},
		},
		"Others": {
			reason:  "Lines tell of the manager's writes to objects of machines.",
			records: []judge.Record{with(by(person, "delete", lab, "m"), deleting), by(manager, "patch", office, "s")},
		},
	})
	judged(t, func() judge.Rule { return judge.Lines(true, begin.Add(10500*time.Millisecond)) }, map[string]ruleCase{
		"Killed": {
			reason:  "A manager that is killed has no time to write what it did just before.",
			records: []judge.Record{made, deleted},
			judged:  1, broken: []string{"the object was created, and the manager's audit log has no line of it"},
		},
	})
	t.Run("WithoutWorkloadClusters", func(t *testing.T) {
		judged(t, func() judge.Rule { return judge.Lines(false) }, map[string]ruleCase{
			"Node": {
				reason:  "The log that would show it is not read.",
				records: []judge.Record{line("NodePatch", "success", "n")},
			},
		})
	})
}
