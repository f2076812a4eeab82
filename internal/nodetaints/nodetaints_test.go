// SPDX-License-Identifier: Apache-2.0

package nodetaints_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
)

// taint parses "key=value:Effect" and "key:Effect".
func taint(s string) nodetaints.Taint {
	rest, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(rest, "=")
	return nodetaints.Taint{Key: key, Value: value, Effect: effect}
}

func taints(list ...string) []nodetaints.Taint {
	var all []nodetaints.Taint
	for _, s := range list {
		all = append(all, taint(s))
	}
	return all
}

func TestMake(t *testing.T) {
	cases := map[string]struct {
		reason                             string
		desired, current, applied          []nodetaints.Taint
		wantTaints, wantApplied            []nodetaints.Taint
		wantConflict, wantNoMentionOfOther string
	}{
		"Add": {
			reason:  "Those of others stay where they are, ours come after them.",
			desired: taints("a=1:NoSchedule"), current: taints("x:NoExecute"),
			wantTaints: taints("x:NoExecute", "a=1:NoSchedule"), wantApplied: taints("a=1:NoSchedule"),
		},
		"EqualForeign": {
			reason:  "An equal taint of another writer stays and never becomes ours.",
			desired: taints("a=1:NoSchedule", "b:NoSchedule"), current: taints("a=1:NoSchedule"),
			wantTaints: taints("a=1:NoSchedule", "b:NoSchedule"), wantApplied: taints("b:NoSchedule"),
		},
		"ValueOfOurs": {
			reason:  "The value of ours may change, in its place.",
			desired: taints("a=2:NoSchedule"), current: taints("a=1:NoSchedule", "x:NoExecute"), applied: taints("a=1:NoSchedule"),
			wantTaints: taints("a=2:NoSchedule", "x:NoExecute"), wantApplied: taints("a=2:NoSchedule"),
		},
		"ForeignValue": {
			reason:  "A foreign taint of the same identity is a conflict, also for the taints beside it.",
			desired: taints("b:NoSchedule", "a=2:NoSchedule"), current: taints("a=1:NoSchedule", "old:NoSchedule"), applied: taints("old:NoSchedule"),
			wantConflict: "spec.nodeTaints wants a=2:NoSchedule, the Node has a=1:NoSchedule, set by another manager: remove the taint from the Node, or change spec.nodeTaints",
		},
		"OursChanged": {
			reason:  "The writer that changed the value of ours owns it now.",
			desired: taints("a=2:NoSchedule"), current: taints("a=x:NoSchedule"), applied: taints("a=1:NoSchedule"),
			wantConflict: "a=x:NoSchedule, which was changed after 5-Spot had set a=1:NoSchedule",
		},
		"OursChangedToWhatIsWanted": {
			reason:  "It is as wanted, and it is theirs.",
			desired: taints("a=2:NoSchedule"), current: taints("a=2:NoSchedule"), applied: taints("a=1:NoSchedule"),
			wantTaints: taints("a=2:NoSchedule"),
		},
		"OursChangedAndNotWanted": {
			reason:  "A taint of another writer is not removed, and is no conflict.",
			current: taints("a=x:NoSchedule"), applied: taints("a=1:NoSchedule"),
			wantTaints: taints("a=x:NoSchedule"),
		},
		"OursRemovedByOthers": {
			reason:  "The spec still wants it.",
			desired: taints("a:NoSchedule"), applied: taints("a:NoSchedule"),
			wantTaints: taints("a:NoSchedule"), wantApplied: taints("a:NoSchedule"),
		},
		"UnknownEffect": {
			reason:  "A taint that we do not know belongs to another writer.",
			desired: taints("a:NoSchedule"), current: taints("a:NoLunch"),
			wantTaints: taints("a:NoLunch", "a:NoSchedule"), wantApplied: taints("a:NoSchedule"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plan, err := nodetaints.Make(tc.desired, tc.current, tc.applied)
			if tc.wantConflict != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantConflict) {
					t.Errorf("%s\ngot %v, want a conflict: %s", tc.reason, err, tc.wantConflict)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if diff := cmp.Diff(nodetaints.Plan{Taints: tc.wantTaints, Applied: tc.wantApplied}, plan); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConflictIsBounded(t *testing.T) {
	desired, current := taints("a=1:E", "b=1:E", "c=1:E", "d=1:E", "e=1:E"), taints("a:E", "b:E", "c:E", "d:E", "e:E")
	_, err := nodetaints.Make(desired, current, nil)
	if err == nil || strings.Count(err.Error(), "wants") != 3 || !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("got %v, want three taints by name and the number of the others", err)
	}
}

// vector is a taint in the test vectors: key, value, effect.
type vector [3]*string

func fromVectors(list []vector) []nodetaints.Taint {
	var all []nodetaints.Taint
	for _, v := range list {
		t := nodetaints.Taint{Key: *v[0], Effect: *v[2]}
		if v[1] != nil {
			t.Value = *v[1]
		}
		all = append(all, t)
	}
	return all
}

func load(t *testing.T, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// absentIsEmpty is the vector that distinguishes an absent value from an empty one. A Node cannot: the API server
// stores both as absent. Therefore they are equal, and an equal taint of another writer stays.
const absentIsEmpty = "null-vs-empty-value"

func TestVectorsOfPlans(t *testing.T) {
	var v struct {
		Diff []struct {
			ID                string
			Current, Desired  []vector
			PreviouslyApplied []vector `json:"previously_applied"`
			Plan              struct{ Add, Update, Remove, Unchanged, Conflict []vector }
		} `json:"taint_diff"`
	}
	load(t, &v)
	if len(v.Diff) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range v.Diff {
		t.Run(c.ID, func(t *testing.T) {
			current := fromVectors(c.Current)
			plan, err := nodetaints.Make(fromVectors(c.Desired), current, fromVectors(c.PreviouslyApplied))
			if conflict := len(c.Plan.Conflict) > 0 && c.ID != absentIsEmpty; conflict != (err != nil) {
				t.Fatalf("got %v, want conflict %t", err, conflict)
			}
			var add, update, remove, unchanged []nodetaints.Taint
			for _, p := range plan.Taints {
				old := slices.IndexFunc(current, func(o nodetaints.Taint) bool { return o.Key == p.Key && o.Effect == p.Effect })
				switch {
				case old < 0:
					add = append(add, p)
				case current[old] != p:
					update = append(update, p)
				case slices.Contains(fromVectors(c.Desired), p) && c.ID != absentIsEmpty:
					unchanged = append(unchanged, p)
				}
			}
			for _, o := range current {
				if !slices.ContainsFunc(plan.Taints, func(p nodetaints.Taint) bool { return o.Key == p.Key && o.Effect == p.Effect }) {
					remove = append(remove, o)
				}
			}
			want := [][]nodetaints.Taint{fromVectors(c.Plan.Add), fromVectors(c.Plan.Update), fromVectors(c.Plan.Remove), fromVectors(c.Plan.Unchanged)}
			if diff := cmp.Diff(want, [][]nodetaints.Taint{add, update, remove, unchanged}); diff != "" {
				t.Errorf("add, update, remove, unchanged: -want, +got:\n%s", diff)
			}
		})
	}
}

func TestVectorsOfOutcomes(t *testing.T) {
	var v struct {
		Outcome []struct{ Node, Outcome string } `json:"taint_outcome"`
	}
	load(t, &v)
	nodes := map[string]*nodetaints.Node{
		"absent":                 nil,
		"Ready=False":            {},
		"Ready=True, plan clean": {Ready: true, Taints: taints("a=1:NoSchedule")},
		"Ready=True, conflict":   {Ready: true, Taints: taints("a=2:NoSchedule")},
	}
	names := map[string]nodetaints.Outcome{
		"NoNodeYet": nodetaints.NoNode, "NodeNotReady": nodetaints.NotReady, "Applied": nodetaints.Settled, "Conflict": nodetaints.Conflicted,
	}
	if len(v.Outcome) != len(nodes) {
		t.Fatalf("%d cases, want %d", len(v.Outcome), len(nodes))
	}
	for _, c := range v.Outcome {
		node, ok := nodes[c.Node]
		if !ok {
			t.Fatalf("unknown case %q", c.Node)
		}
		if d := nodetaints.Decide(nodetaints.Facts{Desired: taints("a=1:NoSchedule"), Node: node}); d.Outcome != names[c.Outcome] {
			t.Errorf("%s: got %s, want %s", c.Node, d.Outcome, names[c.Outcome])
		}
	}
}
