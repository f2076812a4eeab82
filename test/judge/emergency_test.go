// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestEmergency(t *testing.T) {
	exists := with(by(manager, "patch", lab, "m"), created, ofOffice)
	lent := by(person, "create", office, "s")
	remember := with(by(manager, "patch", office, "s"), sets(mark, "{}"))
	eject := with(by(manager, "delete", lab, "m"), ofOffice, deleting, shows(departure, emergency))
	gone := with(by(core, "update", lab, "m"), gone)
	off := func(r *judge.Record) { r.Sent.Enabled = new(bool) }
	disarm := with(by(manager, "patch", office, "s"), off, sets(mark, ""), sets(served, "{}"))
	cleared := with(by(manager, "patch", node, "n"), sets(request, ""), shows("cluster.x-k8s.io/owner-kind", "ScheduledMachine"),
		shows("cluster.x-k8s.io/owner-name", "office"), shows("cluster.x-k8s.io/cluster-namespace", "farm"))
	judged(t, judge.Emergency, map[string]ruleCase{
		"InOrder": {
			reason:  "Record the request, eject, wait for the removal, disable the schedule, clear.",
			records: []judge.Record{lent, exists, remember, eject, gone, disarm, cleared},
			judged:  3,
		},
		"EjectedBeforeItWasRemembered": {
			reason:  "A crash would lose the request, and lend the machine again.",
			records: []judge.Record{lent, exists, eject, remember},
			judged:  1, broken: []string{"the Machine was deleted for its owner, and the ScheduledMachine had no request"},
		},
		"MadeWhileItWasGivenBack": {
			reason:  "Whoever made the Machine had not seen that the owner has it.",
			records: []judge.Record{lent, with(by(manager, "patch", office, "s"), sets(served, "{}")), exists, eject},
			judged:  1,
		},
		"DepartureOfAnotherReason": {
			reason:  "The end of a window is not the owner's.",
			records: []judge.Record{lent, exists, with(by(manager, "delete", lab, "m"), ofOffice, deleting, shows(departure, closed))},
		},
		"DisarmedBeforeItIsGone": {
			reason:  "The owner does not have the machine yet.",
			records: []judge.Record{lent, exists, remember, eject, disarm},
			judged:  2, broken: []string{"the owner's request ended while the Machine was still there"},
		},
		"TurnedOffInTwoSteps": {
			reason:  "A crash between them would take the machine away again once it is lent again.",
			records: []judge.Record{lent, exists, remember, eject, gone, with(by(manager, "patch", office, "s"), off, shows(mark, "{}"))},
			judged:  2, broken: []string{"the schedule was turned off and the owner's request is not shown as served"},
		},
		"TurnedOffByAPersonBefore": {
			reason: "The schedule is off already, so the manager does not write it.",
			records: []judge.Record{
				lent, exists, remember, eject, gone,
				with(by(manager, "patch", office, "s"), sets(mark, ""), sets(served, "{}"), func(r *judge.Record) { r.Got.Disabled = true }),
			},
			judged: 2,
		},
		"ForgottenAndLeftOn": {
			reason:  "The machine would come back at the next edge.",
			records: []judge.Record{lent, exists, remember, eject, gone, with(by(manager, "patch", office, "s"), sets(mark, ""))},
			judged:  2, broken: []string{"the owner's request was forgotten and the schedule left on"},
		},
		"ForgottenOfAControlPlane": {
			reason:  "A control plane is not given back.",
			records: []judge.Record{lent, with(exists, labeled("cluster.x-k8s.io/control-plane", "")), remember, with(by(manager, "patch", office, "s"), sets(mark, ""))},
			judged:  1,
		},
		"ClearedFirst": {
			reason:  "The Node's request is what a new manager finds if the other is lost.",
			records: []judge.Record{lent, exists, remember, eject, gone, cleared, disarm},
			judged:  3, broken: []string{"the request was taken off the Node while it was being served"},
		},
		"StaleRequestCleared": {
			reason:  "Nothing is being served.",
			records: []judge.Record{lent, exists, cleared},
			judged:  1,
		},
	})
}
