// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestSilence(t *testing.T) {
	status := with(by(manager, "patch", office, "s"), func(r *judge.Record) {
		r.Subresource, r.Sent.Changes = "status", []string{"status/conditions"}
	})
	phase := with(status, func(r *judge.Record) { r.Sent = &judge.Sent{Changes: []string{"status/conditions", "status/phase"}} })
	later := func(r *judge.Record) { r.At = begin.Add(time.Hour) }
	silence := judge.Silence{From: begin, To: begin.Add(time.Minute)}
	t.Run("Pause", func(t *testing.T) {
		judged(t, func() judge.Rule { return judge.Quiet(silence) }, map[string]ruleCase{
			"AllowList": {
				reason:  "A paused manager leads, tells, and shows what it would do.",
				records: []judge.Record{by(manager, "update", lease, "l"), by(manager, "create", event, "e"), status},
				judged:  3,
			},
			"Phase": {
				reason:  "A phase that moves would say that something was done.",
				records: []judge.Record{phase},
				judged:  1, broken: []string{"a paused manager wrote a phase"},
			},
			"Write": {
				reason:  "Nothing is carried out.",
				records: []judge.Record{by(manager, "delete", lab, "m")},
				judged:  1, broken: []string{"a paused manager sent delete"},
			},
			"StatusOfAnother": {
				reason:  "Only ScheduledMachines show what would be done.",
				records: []judge.Record{with(status, func(r *judge.Record) { r.Object = lab })},
				judged:  1, broken: []string{"a paused manager sent patch"},
			},
			"Spec": {
				reason:  "What people wrote is not status.",
				records: []judge.Record{with(status, func(r *judge.Record) { r.Subresource = "" })},
				judged:  1, broken: []string{"a paused manager sent patch"},
			},
			"RefusedCounts": {
				reason:  "It must not even be sent.",
				records: []judge.Record{with(by(manager, "delete", lab, "m"), refused)},
				judged:  1, broken: []string{"a paused manager sent delete"},
			},
			"Unlogged": {
				reason:  "Whether it moves the phase cannot be seen.",
				records: []judge.Record{with(status, unlogged)},
				judged:  1, broken: []string{"the log has no body of this request"},
			},
			"Afterwards": {
				reason:  "The pause is over.",
				records: []judge.Record{with(by(manager, "delete", lab, "m"), later)},
			},
			"Others": {
				reason:  "A pause of 5-Spot pauses nobody else.",
				records: []judge.Record{by(person, "delete", lab, "m"), with(by(agent, "patch", node, "n"), sets(request, "true"))},
			},
		})
	})
	t.Run("Shadow", func(t *testing.T) {
		silence.Shadow = true
		judged(t, func() judge.Rule { return judge.Quiet(silence) }, map[string]ruleCase{
			"AllowList": {
				reason:  "It keeps a lease of its own.",
				records: []judge.Record{by(manager, "update", lease, "l"), by(manager, "create", event, "e")},
				judged:  2,
			},
			"Status": {
				reason:  "The status is that of the manager that works.",
				records: []judge.Record{status},
				judged:  1, broken: []string{"a manager in shadow mode sent patch"},
			},
		})
	})
}

func TestSettled(t *testing.T) {
	judged(t, func() judge.Rule { return judge.Settled(begin, begin.Add(time.Minute)) }, map[string]ruleCase{
		"Lease": {
			reason:  "Who leads says so.",
			records: []judge.Record{by(manager, "update", lease, "l")},
			judged:  1,
		},
		"Write": {
			reason:  "Nothing had happened.",
			records: []judge.Record{by(manager, "patch", office, "s")},
			judged:  1, broken: []string{"the manager sent patch scheduledmachines "},
		},
		"Event": {
			reason:  "There is nothing to tell.",
			records: []judge.Record{by(manager, "create", event, "e")},
			judged:  1, broken: []string{"the manager sent create events "},
		},
		"Others": {
			reason:  "Cluster API may do what it likes.",
			records: []judge.Record{by(core, "patch", lab, "m")},
		},
		"Before": {
			reason:  "The fleet was not settled yet.",
			records: []judge.Record{with(by(manager, "patch", office, "s"), func(r *judge.Record) { r.At = begin.Add(-time.Second) })},
		},
	})
}
