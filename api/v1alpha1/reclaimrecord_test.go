// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

func TestReclaimTexts(t *testing.T) {
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Texts []struct{ Reason, At, Node, Event, Condition string } `json:"reclaim_texts"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Texts) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range v.Texts {
		r := v1alpha1.ReclaimRecord{Node: c.Node, Reason: c.Reason, RequestedAt: c.At}
		if diff := cmp.Diff([]string{c.Event, c.Condition}, []string{r.Requested(), r.Where()}); diff != "" {
			t.Errorf("%+v: -want, +got:\n%s", r, diff)
		}
	}
}

func TestRequestOfAPerson(t *testing.T) {
	at := time.Date(2025, 1, 15, 12, 0, 0, 0, time.FixedZone("EST", -5*3600))
	r := v1alpha1.ParseReclaimRecord(v1alpha1.PersonsRequest("", "Ada needs it", at).String())
	if !r.ByPerson() {
		t.Error("no Node asked")
	}
	if want := "Emergency reclaim at 2025-01-15T17:00:00Z: asked by a person: Ada needs it"; r.Where() != want {
		t.Errorf("got %q, want %q", r.Where(), want)
	}
	if got := v1alpha1.PersonsRequest("n1", "", at).Why(); got != "asked by a person" {
		t.Errorf("without a reason: %q", got)
	}
	if (v1alpha1.ReclaimRecord{Node: "n1", NodeUID: "u1"}).ByPerson() {
		t.Error("a Node that asks is no person")
	}
	if !v1alpha1.ParseReclaimRecord("I need it").ByPerson() {
		t.Error("what is no record was written by hand")
	}
}

// Every user who may edit a ScheduledMachine may write its annotations.
func TestParsedRecordsAreScreened(t *testing.T) {
	got := v1alpha1.ParseReclaimRecord(`{"node":"n1\nNode: x","nodeUID":"u\u001b[2J","reason":"a\nDo: run it\u202e","requestedAt":"1970\u2028x"}`)
	want := v1alpha1.ReclaimRecord{Node: "n1 Node: x", NodeUID: "u[2J", Reason: "a Do: run it", RequestedAt: "1970 x"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if n := len([]rune(v1alpha1.ParseReclaimRecord(`{"reason":"` + strings.Repeat("é", 300) + `"}`).Reason)); n != 256 {
		t.Errorf("%d characters", n)
	}
}

func FuzzParseReclaimRecord(f *testing.F) {
	f.Add(v1alpha1.ReclaimRecord{Node: "n1", Reason: "process-match: java"}.String())
	f.Add("")
	f.Add("{")
	f.Add("java\n\x1b[31m")
	f.Fuzz(func(t *testing.T, value string) {
		r := v1alpha1.ParseReclaimRecord(value)
		if again := v1alpha1.ParseReclaimRecord(r.String()); again.Node != strings.ToValidUTF8(r.Node, "\uFFFD") {
			t.Errorf("%q: %+v, read again %+v", value, r, again)
		}
		for _, s := range []string{r.Node, string(r.NodeUID), r.Reason, r.RequestedAt} {
			if len([]rune(s)) > 256 || strings.ContainsFunc(s, unicode.IsControl) {
				t.Errorf("%q: not screened: %q", value, s)
			}
		}
	})
}
