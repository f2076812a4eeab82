// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestSteps(t *testing.T) {
	exists := with(by(manager, "patch", lab, "m"), created, ofOffice, shows(preDrain, ""))
	record := with(by(manager, "patch", lab, "m"), ofOffice, sets(departure, closed), shows(preDrain, ""))
	hook := with(by(manager, "patch", lab, "m"), ofOffice, sets(preDrain, ""))
	gone := with(by(core, "update", lab, "m"), gone)
	remove := with(by(manager, "delete", lab, "m"), ofOffice, deleting)
	failed := func(reason string) judge.Record {
		return judge.Record{Object: lab, Line: &judge.Line{Outcome: "api_error", UID: "m", Reason: reason}}
	}
	answered := func(reason string) judge.Record {
		r := failed(reason)
		r.Line.Outcome = "success"
		return r
	}
	owned := func(r *judge.Record) { r.Got.Owner = "m" }
	judged(t, judge.Steps, map[string]ruleCase{
		"RecordThenDeletion": {
			reason:  "Record, hook, deletion, infrastructure: the order of a departure.",
			records: []judge.Record{exists, record, with(hook, shows(departure, closed)), with(remove, shows(departure, closed)), with(by(manager, "delete", infra, "i"), owned)},
			judged:  3,
		},
		"DeletionWithoutRecord": {
			reason:  "Nobody could say why the machine left.",
			records: []judge.Record{exists, remove},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"DeletionBeforeRecord": {
			reason:  "A crash between the two would lose why.",
			records: []judge.Record{exists, remove, with(record, deleting)},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"UnreadableRecord": {
			reason:  "What no controller writes is no record.",
			records: []judge.Record{exists, with(remove, shows(departure, "{}"))},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"RecordIsKnownWhereTheAnswerHasNoObject": {
			reason:  "An API server may answer with a status.",
			records: []judge.Record{exists, record, with(remove, func(r *judge.Record) { r.Got = &judge.State{UID: "m", Gone: true} })},
			judged:  1,
		},
		"RefusedRecordOfAnOwner": {
			reason:  "While webhooks refuse the record, an owner does not wait.",
			records: []judge.Record{exists, with(by(manager, "patch", lab, "m"), sets(departure, emergency), refused), remove},
			judged:  1,
		},
		"RefusedRecordOfAWindow": {
			reason:  "A window's end waits until the record can be written.",
			records: []judge.Record{exists, with(by(manager, "patch", lab, "m"), sets(departure, closed), refused), remove},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"UnansweredRecordOfAnOwner": {
			reason:  "While webhooks do not answer, an owner does not wait. The API server's log may lack the request.",
			records: []judge.Record{exists, failed("EmergencyReclaim"), remove},
			judged:  1,
		},
		"UnansweredRecordBeforeAnotherRefusal": {
			reason:  "The planner's record, which lost to another write, does not undo the attempt.",
			records: []judge.Record{exists, failed("KillSwitch"), with(by(manager, "patch", lab, "m"), sets(departure, closed), refused), failed("WindowClosed"), remove},
			judged:  1,
		},
		"UnansweredRecordInALateLine": {
			reason:  "A manager's clock may be wrong, so its lines may come last.",
			records: []judge.Record{exists, remove, failed("KillSwitch")},
			judged:  1,
		},
		"RecordAfterTheDeletion": {
			reason:  "The manager's log shows that it deleted first.",
			records: []judge.Record{exists, remove, answered("KillSwitch"), failed("KillSwitch")},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"UnansweredRecordOfAWindowInALateLine": {
			reason:  "A window's end waits until the record can be written.",
			records: []judge.Record{exists, remove, failed("WindowClosed")},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"UnansweredRecordOfAWindow": {
			reason:  "A window's end waits until the record can be written.",
			records: []judge.Record{exists, failed("WindowClosed"), remove},
			judged:  1, broken: []string{"the Machine was deleted without a record of its departure"},
		},
		"SomebodyElseDeletes": {
			reason:  "A person owes nobody a record; the hook waits for it.",
			records: []judge.Record{exists, with(by(person, "delete", lab, "m"), deleting), with(hook, deleting, shows(departure, closed))},
			judged:  1,
		},
		"HookWithoutRecord": {
			reason:  "Cluster API would drain, and nobody knew since when.",
			records: []judge.Record{exists, with(hook, deleting)},
			judged:  1, broken: []string{"a deletion hook was taken off a Machine that has no record of a departure"},
		},
		"HookTakenOffByUpdate": {
			reason:  "An update takes off what it does not say.",
			records: []judge.Record{exists, with(by(manager, "update", lab, "m"), ofOffice)},
			judged:  1, broken: []string{"a deletion hook was taken off a Machine that has no record of a departure"},
		},
		"InfrastructureFirst": {
			reason:  "Providers look whether the Machine goes.",
			records: []judge.Record{exists, record, with(by(manager, "delete", infra, "i"), owned)},
			judged:  1, broken: []string{"it was deleted before its Machine office-machine"},
		},
		"InfrastructureOfAMachineThatIsGone": {
			reason:  "There is nothing left to delete first.",
			records: []judge.Record{exists, gone, with(by(manager, "delete", infra, "i"), owned)},
			judged:  1,
		},
		"InfrastructureWithTheNamespace": {
			reason:  "A collection that is deleted takes its Machines along.",
			records: []judge.Record{exists, with(by("namespace-controller", "deletecollection", lab, ""), func(r *judge.Record) { r.Object.Name, r.Got = "", nil }), with(by(manager, "delete", infra, "i"), owned)},
			judged:  1,
		},
	})
}
