// SPDX-License-Identifier: Apache-2.0

package difference_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/difference"
)

type (
	object = map[string]any
	list   = []any
)

func TestBetween(t *testing.T) {
	t.Parallel()
	before := object{"a": int64(1), "b": object{"c": "x", "d.e/f": "y"}, "l": list{"p", object{"n": "q"}}, "m": list{"r"}, "same": list{object{}}}
	after := object{"a": int64(2), "b": object{"c": "x"}, "l": list{"p"}, "m": list{"r", "s"}, "new": true, "same": list{object{}}}
	want := []difference.Field{
		{Path: "a", Before: int64(1), After: int64(2)},
		{Path: "b[d.e/f]", Before: "y"},
		{Path: "l[1]", Before: object{"n": "q"}, Element: true},
		{Path: "m[1]", After: "s", Element: true},
		{Path: "new", After: true},
	}
	if diff := cmp.Diff(want, difference.Between("", before, after)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestPath has a manager that owns the second webhook. A path with the index of the managed field alone would name the
// first.
func TestPath(t *testing.T) {
	t.Parallel()
	live := object{
		"metadata": object{"labels": object{"a.b/c": "d"}},
		"actions":  list{"Deny", "Audit"},
		"webhooks": list{object{"name": "one"}, object{"name": "two", "client": object{"port": int64(1)}}},
	}
	for want, managed := range map[string]fieldpath.Path{
		"metadata.labels[a.b/c]":  fieldpath.MakePathOrDie("metadata", "labels", "a.b/c"),
		"actions[1]":              fieldpath.MakePathOrDie("actions", value.NewValueInterface("Audit")),
		"webhooks[1].client.port": fieldpath.MakePathOrDie("webhooks", fieldpath.KeyByFields("name", "two"), "client", "port"),
		"webhooks[-1].client":     fieldpath.MakePathOrDie("webhooks", fieldpath.KeyByFields("name", "gone"), "client"),
		"webhooks[0].name":        fieldpath.MakePathOrDie("webhooks", 0, "name"),
	} {
		if got := difference.Path(live, managed); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"spec.a": true, "spec.a.b": true, "spec.a[0]": true, "spec.ab": false, "spec": false} {
		if got := difference.Within(path, "spec.a"); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
