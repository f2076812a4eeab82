// SPDX-License-Identifier: Apache-2.0

package nodetaints_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
)

// The sets are small, so that taints collide.
var (
	keys    = []string{"a", "b", "c", "d"}
	values  = []string{"", "1", "2"}
	effects = []string{"NoSchedule", "NoExecute"}
)

func identity(t nodetaints.Taint) string { return t.Key + ":" + t.Effect }

// drawTaints draws taints without duplicates.
func drawTaints(keys []string) *rapid.Generator[[]nodetaints.Taint] {
	one := rapid.Custom(func(t *rapid.T) nodetaints.Taint {
		return nodetaints.Taint{
			Key: rapid.SampledFrom(keys).Draw(t, "key"), Value: rapid.SampledFrom(values).Draw(t, "value"),
			Effect: rapid.SampledFrom(effects).Draw(t, "effect"),
		}
	})
	return rapid.SliceOfNDistinct(one, 0, 6, identity)
}

// drawNode draws a ready Node, and a record of 5-Spot's taints. The record may also have taints that are not on the
// Node any more.
func drawNode(t *rapid.T) (node *nodetaints.Node, record []nodetaints.Taint) {
	node = &nodetaints.Node{Ready: true, Taints: drawTaints(keys).Draw(t, "current")}
	for _, have := range node.Taints {
		if rapid.Bool().Draw(t, "ours") {
			record = append(record, have)
		}
	}
	for _, more := range drawTaints(keys).Draw(t, "stale") {
		if !slices.ContainsFunc(record, func(r nodetaints.Taint) bool { return identity(r) == identity(more) }) && !slices.Contains(node.Taints, more) {
			record = append(record, more)
		}
	}
	if len(record) > 0 {
		node.Record = new(nodetaints.Format(record))
	}
	return node, record
}

// apply carries a decision out like the controller.
func apply(node *nodetaints.Node, desired []nodetaints.Taint) nodetaints.Decision {
	d := nodetaints.Decide(nodetaints.Facts{Desired: desired, Node: node})
	if d.Outcome == nodetaints.Write {
		node.Taints, node.Record = slices.Clone(d.Plan.Taints), nil
		if len(d.Plan.Applied) > 0 {
			node.Record = new(nodetaints.Format(d.Plan.Applied))
		}
	}
	return d
}

// foreign returns the taints of other writers.
func foreign(current, record []nodetaints.Taint) []nodetaints.Taint {
	return slices.DeleteFunc(slices.Clone(current), func(t nodetaints.Taint) bool { return slices.Contains(record, t) })
}

func recorded(t *rapid.T, node *nodetaints.Node) []nodetaints.Taint {
	if node.Record == nil {
		return nil
	}
	record, err := nodetaints.Parse(*node.Record)
	if err != nil {
		t.Fatalf("our own record: %v", err)
	}
	return record
}

func TestApplyingTwiceEqualsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, _ := drawNode(t)
		desired := drawTaints(keys).Draw(t, "desired")
		first := apply(node, desired)
		again := apply(node, desired)
		if again.Outcome == nodetaints.Write {
			t.Fatalf("first %+v, then again %+v", first, again)
		}
		if first.Outcome != nodetaints.Conflicted && !slices.Equal(first.Applied, again.Applied) {
			t.Fatalf("first %v are ours, then %v", first.Applied, again.Applied)
		}
	})
}

func TestForeignTaintsNeverChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, record := drawNode(t)
		theirs := foreign(node.Taints, record)
		before := slices.Clone(node.Taints)
		d := apply(node, drawTaints(keys).Draw(t, "desired"))
		kept := slices.DeleteFunc(slices.Clone(node.Taints), func(t nodetaints.Taint) bool { return !slices.Contains(theirs, t) })
		if !slices.Equal(theirs, kept) {
			t.Fatalf("of the foreign %v are left %v", theirs, kept)
		}
		for _, f := range theirs {
			if slices.Contains(recorded(t, node), f) && d.Outcome == nodetaints.Write {
				t.Fatalf("the foreign %v became ours", f)
			}
		}
		if d.Outcome == nodetaints.Conflicted && !slices.Equal(before, node.Taints) {
			t.Fatalf("a conflict changed %v to %v", before, node.Taints)
		}
	})
}

func TestWhatIsWantedIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, _ := drawNode(t)
		desired := drawTaints(keys).Draw(t, "desired")
		if d := apply(node, desired); d.Outcome == nodetaints.Conflicted {
			return
		}
		for _, want := range desired {
			if !slices.Contains(node.Taints, want) {
				t.Fatalf("%v lacks %v", node.Taints, want)
			}
		}
	})
}

func TestRemovingAllRestoresTheForeignOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, record := drawNode(t)
		theirs := foreign(node.Taints, record)
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			apply(node, drawTaints(keys).Draw(t, "desired"))
		}
		apply(node, nil)
		if !slices.Equal(theirs, node.Taints) || node.Record != nil {
			t.Fatalf("want %v without a record, got %v, %v", theirs, node.Taints, recorded(t, node))
		}
	})
}

// TestAnyOrderOfTwoActors interleaves our steps with another writer that adds, changes and removes taints, ours
// included. Its last writes are never undone. The exception is a taint that it removed and that the spec wants.
func TestAnyOrderOfTwoActors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := &nodetaints.Node{Ready: true}
		theirs := map[string]nodetaints.Taint{} // the latest taints of the other writer
		t.Repeat(map[string]func(*rapid.T){
			"we apply": func(t *rapid.T) {
				apply(node, drawTaints(keys).Draw(t, "desired"))
			},
			"they set": func(t *rapid.T) {
				set := nodetaints.Taint{
					Key: rapid.SampledFrom(keys).Draw(t, "key"), Value: rapid.SampledFrom(values).Draw(t, "value"),
					Effect: rapid.SampledFrom(effects).Draw(t, "effect"),
				}
				if slices.Contains(node.Taints, set) {
					return // The write of an equal taint changes nothing, and does not change its owner.
				}
				node.Taints = append(slices.DeleteFunc(slices.Clone(node.Taints), func(o nodetaints.Taint) bool { return identity(o) == identity(set) }), set)
				delete(theirs, identity(set))
				if slices.Contains(recorded(t, node), set) {
					return // It equals the taint in our record, so that it counts as ours.
				}
				theirs[identity(set)] = set
			},
			"they remove": func(t *rapid.T) {
				if len(node.Taints) == 0 {
					return
				}
				gone := rapid.SampledFrom(node.Taints).Draw(t, "gone")
				node.Taints = slices.DeleteFunc(slices.Clone(node.Taints), func(o nodetaints.Taint) bool { return o == gone })
				delete(theirs, identity(gone))
			},
			"": func(t *rapid.T) {
				for _, set := range theirs {
					if !slices.Contains(node.Taints, set) {
						t.Fatalf("they set %v, now there is %v, ours %v", set, node.Taints, recorded(t, node))
					}
				}
			},
		})
	})
}

// TestOrderDoesNotMatter covers two writers whose taints do not collide. In any order, the Node ends with the same
// taints.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := nodetaints.Node{Ready: true}, nodetaints.Node{Ready: true}
		ours, others := drawTaints(keys[:2]).Draw(t, "ours"), drawTaints(keys[2:]).Draw(t, "others")
		apply(&first, ours)
		first.Taints = append(first.Taints, others...)
		apply(&first, ours)
		second.Taints = slices.Clone(others)
		apply(&second, ours)
		slices.SortFunc(first.Taints, byIdentity)
		slices.SortFunc(second.Taints, byIdentity)
		if !slices.Equal(first.Taints, second.Taints) {
			t.Fatalf("we first: %v, they first: %v", first.Taints, second.Taints)
		}
	})
}

func byIdentity(a, b nodetaints.Taint) int {
	switch {
	case identity(a) < identity(b):
		return -1
	case identity(a) > identity(b):
		return 1
	default:
		return 0
	}
}
