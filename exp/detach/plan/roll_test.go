// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

func TestNextStepOfRoll(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC)
	pod := func(node, revision string, change ...func(*plan.RollNode)) plan.RollNode {
		s := plan.RollNode{Node: node, Pods: []plan.Pod{{UID: "pod-" + node, Revision: revision, Ready: true}}}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	dark := func(s *plan.RollNode) { s.Pods[0].Ready = false }
	ending := func(s *plan.RollNode) { s.Pods[0].Terminating = true }
	none := func(s *plan.RollNode) { s.Pods = nil }
	away := func(s *plan.RollNode) { s.Detached = true }
	owed := func(s *plan.RollNode) { s.RestorePending = true }
	out := func(ago time.Duration) func(*plan.RollNode) {
		return func(s *plan.RollNode) { s.Replaces, s.Since = true, now.Add(-ago) }
	}
	soon := now.Add(9 * time.Minute)
	for name, tc := range map[string]struct {
		reason string
		nodes  []plan.RollNode
		want   plan.RollStep
	}{
		"UpToDate":   {"Nothing is to be done.", []plan.RollNode{pod("a", "2"), pod("b", "2")}, plan.RollStep{}},
		"NobodyRuns": {"Nor is it here.", nil, plan.RollStep{}},
		"DarkNew":    {"Nobody is rolled.", []plan.RollNode{pod("a", "2", dark)}, plan.RollStep{}},
		"Begins":     {"The first by name.", []plan.RollNode{pod("c", "1"), pod("b", "1"), pod("a", "2")}, plan.RollStep{Node: "b", Pod: "pod-b", Left: 2}},
		"BackAgain":  {"Another revision is not the one.", []plan.RollNode{pod("a", "3")}, plan.RollStep{Node: "a", Pod: "pod-a", Left: 1}},
		"GoesOut":    {"One at a time.", []plan.RollNode{pod("a", "1"), pod("b", "1", out(time.Minute))}, plan.RollStep{Left: 2, Waits: "Node b is being detached", Until: soon}},
		"Ends":       {"It takes its time.", []plan.RollNode{pod("a", "1", ending, out(time.Minute)), pod("b", "1")}, plan.RollStep{Left: 1, Waits: "Node a waits for a Ready pod", Until: soon}},
		"IsGone":     {"Another one is to come.", []plan.RollNode{pod("a", "1", none, out(time.Minute)), pod("b", "1")}, plan.RollStep{Left: 1, Waits: "Node a waits for a Ready pod", Until: soon}},
		"Last":       {"It is not over yet.", []plan.RollNode{pod("a", "2", dark, out(time.Minute))}, plan.RollStep{Waits: "Node a waits for a Ready pod", Until: soon}},
		"Stuck":      {"People are told.", []plan.RollNode{pod("a", "2", dark, out(10*time.Minute)), pod("b", "1")}, plan.RollStep{Left: 1, Waits: "Node a waits for a Ready pod", Late: true}},
		"ComesBack":  {"Its place is not its own yet.", []plan.RollNode{pod("a", "2", owed), pod("b", "1")}, plan.RollStep{Left: 1, Waits: "Node a is being restored"}},
		"Dark":       {"Somebody else serves nobody.", []plan.RollNode{pod("a", "1"), pod("b", "2", dark)}, plan.RollStep{Left: 1, Waits: "Node b has no Ready pod", Late: true}},
		"DarkItself": {"Nor is it replaced itself.", []plan.RollNode{pod("a", "1", dark), pod("b", "1")}, plan.RollStep{Left: 2, Waits: "Node a has no Ready pod", Late: true}},
		"Missing":    {"One has no pod at all.", []plan.RollNode{pod("a", "1"), pod("b", "1", none)}, plan.RollStep{Left: 1, Waits: "Node b has no Ready pod", Late: true}},
		"Away":       {"It is not rolled, and holds up nobody.", []plan.RollNode{pod("a", "1", away, dark), pod("b", "1")}, plan.RollStep{Node: "b", Pod: "pod-b", Left: 2}},
		"AllAway":    {"Their turn comes.", []plan.RollNode{pod("a", "1", away), pod("b", "2")}, plan.RollStep{Left: 1, Waits: "Node a is out for another reason"}},
		"AwayBegun":  {"What was deleted is waited for.", []plan.RollNode{pod("a", "2", away, dark, out(time.Minute)), pod("b", "1")}, plan.RollStep{Left: 1, Waits: "Node a waits for a Ready pod", Until: soon}},
	} {
		got := plan.Roll{Revision: "2", Nodes: tc.nodes, Wanted: len(tc.nodes), Now: now}.Next()
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s -want, +got:\n%s", name, tc.reason, diff)
		}
	}
	if got := (plan.Roll{Revision: "2", Nodes: []plan.RollNode{pod("a", "1")}, Wanted: 2, Now: now}).Next(); got.Node != "" || got.Waits != "a Node has no pod" {
		t.Errorf("a Node that has none is nobody's: %+v", got)
	}
}
