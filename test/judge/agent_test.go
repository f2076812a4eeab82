// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestAgent(t *testing.T) {
	asks := with(by(agent, "patch", node, "n"), sets(request, "true"))
	bound := func(r *judge.Record) { r.Node = "box" }
	other := func(r *judge.Record) { r.Object.Name = "desk" }
	byName := func(r *judge.Record) { r.User, r.Program = "agent-lab", "5spot-reclaim-agent" }
	judged(t, judge.Agent, map[string]ruleCase{
		"OwnNode": {
			reason:  "That is its work.",
			records: []judge.Record{with(asks, bound)},
			judged:  1,
		},
		"OtherNode": {
			reason:  "An agent speaks for one owner.",
			records: []judge.Record{with(asks, bound, other)},
			judged:  1, broken: []string{"the agent of Node box wrote to Node desk"},
		},
		"RefusedCounts": {
			reason:  "That it could not is not its merit.",
			records: []judge.Record{with(asks, bound, other, refused)},
			judged:  1, broken: []string{"the agent of Node box wrote to Node desk"},
		},
		"SecondNodeOfAnUnboundToken": {
			reason:  "Whose it is shows the first write.",
			records: []judge.Record{with(asks, byName), with(asks, byName, other)},
			judged:  2, broken: []string{"the agent of Node box wrote to Node desk"},
		},
		"ConfigMap": {
			reason:  "It only reads it.",
			records: []judge.Record{with(by(agent, "update", configMap, "c"), bound)},
			judged:  1, broken: []string{"an agent sent update configmaps "},
		},
		"Status": {
			reason:  "The status of a Node is its kubelet's.",
			records: []judge.Record{with(asks, bound, func(r *judge.Record) { r.Subresource = "status" })},
			judged:  1, broken: []string{"an agent sent patch nodes status"},
		},
		"Taints": {
			reason:  "It asks, and does nothing itself.",
			records: []judge.Record{with(asks, bound, func(r *judge.Record) { r.Sent.Changes = []string{"metadata/annotations", "spec/taints"} })},
			judged:  1, broken: []string{"an agent changed spec.taints"},
		},
		"Unlogged": {
			reason:  "What cannot be read cannot be acquitted.",
			records: []judge.Record{with(asks, bound, unlogged)},
			judged:  1, broken: []string{"the log has no body of this request"},
		},
		"Others": {
			reason:  "A kubelet is no agent.",
			records: []judge.Record{by("system:node:box", "patch", node, "n")},
		},
	})
}
