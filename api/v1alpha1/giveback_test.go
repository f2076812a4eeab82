// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGiveBacks(t *testing.T) {
	m := &ScheduledMachine{}
	if got := m.GiveBacks(); len(got) > 0 {
		t.Errorf("got %v, want none", got)
	}
	at := time.Date(2026, 4, 20, 21, 45, 0, 61e6, time.UTC)
	hold := &HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9, KilledPods: 8, KilledAfterMilliseconds: 180}
	first := GiveBack{ReclaimRecord: ReclaimRecord{Node: "box", NodeUID: "1", Reason: "process-match: java", RequestedAt: "2026-04-20T21:45:00Z"}.Served(at)}
	if got := first.Deleted(time.Time{}, hold); got.DeletedAt != "" || got.Hold != nil {
		t.Errorf("without a Machine, the hold is the one of an earlier reclaim: %+v", got)
	}
	first = first.Deleted(at, hold)
	m.AddGiveBack(first)
	const want = `[{"node":"box","nodeUID":"1","reason":"process-match: java","requestedAt":"2026-04-20T21:45:00Z","servedAt":"2026-04-20T21:45:00Z",` +
		`"deletedAt":"2026-04-20T21:45:00.061Z","hold":{"frozenPods":8,"frozenAfterMilliseconds":9,"killedPods":8,"killedAfterMilliseconds":180}}]`
	if diff := cmp.Diff(want, m.Annotations[GiveBacksAnnotation]); diff != "" {
		t.Errorf("the text is an API: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]GiveBack{first}, m.GiveBacks()); diff != "" {
		t.Errorf("what is written is read: -want, +got:\n%s", diff)
	}
}

func TestGiveBacksAreBounded(t *testing.T) {
	m := &ScheduledMachine{}
	for i := range MaxGiveBacks + 5 {
		m.AddGiveBack(GiveBack{ReclaimRecord: ReclaimRecord{Node: fmt.Sprint(i), Reason: strings.Repeat("ä", 10000)}.Screened()})
	}
	list := m.GiveBacks()
	if len(list) != MaxGiveBacks || list[0].Node != "24" || list[MaxGiveBacks-1].Node != "5" {
		t.Errorf("%d records, from %s to %s", len(list), list[0].Node, list[len(list)-1].Node)
	}
	if n := len(m.Annotations[GiveBacksAnnotation]); n > 16<<10 {
		t.Errorf("the annotation has %d bytes", n)
	}
	for _, text := range []string{"{", "{}", "null", `"x"`, strings.Repeat("[", 100000)} {
		m.Annotations[GiveBacksAnnotation] = text
		if got := m.GiveBacks(); len(got) > 0 {
			t.Errorf("%.10s: got %v, want none", text, got)
		}
	}
	m.AddGiveBack(GiveBack{})
	if len(m.GiveBacks()) != 1 {
		t.Error("an unreadable list is replaced")
	}
	m.Annotations[GiveBacksAnnotation] = `[{"node":"a\u001bb","reason":"x\ny","deletedAt":"\u202e"}]`
	if g := m.GiveBacks()[0]; strings.ContainsAny(g.Node+g.Reason+g.DeletedAt, "\x1b\n\u202e") {
		t.Errorf("%q is not screened", g)
	}
}
