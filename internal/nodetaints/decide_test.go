// SPDX-License-Identifier: Apache-2.0

package nodetaints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
)

func TestDecide(t *testing.T) {
	ours := taints("a=1:NoSchedule")
	record := nodetaints.Format(ours)
	ready := func(record *string, have ...string) *nodetaints.Node {
		return &nodetaints.Node{Ready: true, Taints: taints(have...), Record: record}
	}
	write := func(have, applied []nodetaints.Taint) nodetaints.Decision {
		return nodetaints.Decision{Outcome: nodetaints.Write, Plan: nodetaints.Plan{Taints: have, Applied: applied}, Applied: applied}
	}
	cases := map[string]struct {
		reason string
		facts  nodetaints.Facts
		want   nodetaints.Decision
	}{
		"NothingAtAll": {
			"Most machines have no taints.",
			nodetaints.Facts{Node: ready(nil, "x:NoExecute")},
			nodetaints.Decision{Outcome: nodetaints.Nothing},
		},
		"UnseenIsNotAbsent": {
			"Nothing is known of a Node that cannot be seen.",
			nodetaints.Facts{Desired: ours, Unseen: true},
			nodetaints.Decision{Outcome: nodetaints.Unseen},
		},
		"First": {
			"Taints and record are one write.",
			nodetaints.Facts{Desired: ours, Node: ready(nil)},
			write(ours, ours),
		},
		"Settled": {
			"A settled Node is not written.",
			nodetaints.Facts{Desired: ours, Node: ready(&record, "a=1:NoSchedule")},
			nodetaints.Decision{Outcome: nodetaints.Settled, Applied: ours},
		},
		"RecordWrittenOtherwise": {
			"White space is no reason to write.",
			nodetaints.Facts{Desired: ours, Node: ready(new(`[ {"effect":"NoSchedule", "key":"a", "value":"1"} ]`), "a=1:NoSchedule")},
			nodetaints.Decision{Outcome: nodetaints.Settled, Applied: ours},
		},
		"OnlyForeign": {
			"Nothing of it is ours, so there is no record.",
			nodetaints.Facts{Desired: ours, Node: ready(nil, "a=1:NoSchedule")},
			nodetaints.Decision{Outcome: nodetaints.Settled},
		},
		"Cleared": {
			"The last of ours goes together with its record.",
			nodetaints.Facts{Node: ready(&record, "x:NoExecute", "a=1:NoSchedule")},
			write(taints("x:NoExecute"), nil),
		},
		"ClearedAfterAnotherWriterRemovedIt": {
			"The record goes too.", nodetaints.Facts{Node: ready(&record)}, write(nil, nil),
		},
		"NotReady": {
			"What is there is said, and nothing is changed.",
			nodetaints.Facts{Desired: taints("b:NoExecute"), Node: &nodetaints.Node{Taints: ours, Record: &record}},
			nodetaints.Decision{Outcome: nodetaints.NotReady, Applied: ours},
		},
		"Leaving": {
			"A machine that leaves is left alone.",
			nodetaints.Facts{Desired: ours, Node: ready(nil), Leaving: true},
			nodetaints.Decision{Outcome: nodetaints.Leaving},
		},
		"LeftAndGone": {
			"Its Node is gone.",
			nodetaints.Facts{Desired: ours, Leaving: true},
			nodetaints.Decision{Outcome: nodetaints.NoNode},
		},
		"Conflict": {
			"What is ours is still ours.",
			nodetaints.Facts{Desired: taints("x=1:NoExecute"), Node: ready(&record, "x:NoExecute", "a=1:NoSchedule")},
			nodetaints.Decision{Outcome: nodetaints.Conflicted, Applied: ours},
		},
	}
	for _, bad := range []string{
		"", "{", "null", `"a"`, `[{"key":"a"}]`, `[{"effect":"NoSchedule"}]`, `[1]`, `[]x`,
		`[{"key":"a","effect":"E"},{"key":"a","value":"2","effect":"E"}]`,
		`[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]`,
	} {
		cases["Unreadable "+bad] = struct {
			reason string
			facts  nodetaints.Facts
			want   nodetaints.Decision
		}{
			"A record that cannot be read is not an empty one, and nothing is written.",
			nodetaints.Facts{Node: ready(&bad, "a=1:NoSchedule")},
			nodetaints.Decision{Outcome: nodetaints.Unreadable},
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := nodetaints.Decide(tc.facts)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(nodetaints.Decision{}, "Err"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			stands := got.Outcome == nodetaints.Conflicted || got.Outcome == nodetaints.Unreadable
			if stands != (got.Err != nil) {
				t.Errorf("%s: error %v", got.Outcome, got.Err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(nodetaints.Format(taints("a=1:NoSchedule", "b:NoExecute")))
	f.Add("[]")
	f.Add("null")
	f.Fuzz(func(t *testing.T, record string) {
		applied, err := nodetaints.Parse(record)
		if err != nil {
			return
		}
		again, err := nodetaints.Parse(nodetaints.Format(applied))
		if err != nil {
			t.Fatalf("%q: what was read cannot be read again: %v", record, err)
		}
		if diff := cmp.Diff(applied, again); diff != "" {
			t.Errorf("%q: -first, +again:\n%s", record, diff)
		}
	})
}
