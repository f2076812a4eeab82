// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

// TestProgramsAreAddedAtThePaceOfTheCap adds a program twice within a window, in a fleet where one agent may get more
// programs at a time.
func TestProgramsAreAddedAtThePaceOfTheCap(t *testing.T) {
	w := protected(t)
	w.r.RolloutFraction = 50_000
	programs := func(programs ...string) { w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = programs }) }
	programs("java", "idea")
	w.writes("the first agent gets it at once", "patch ConfigMap")
	programs("java", "idea", "bash")
	w.writes("the next one has to wait")
	w.wantAgent("java", "idea")
	if w.again <= 0 || w.again > departure.Window {
		t.Errorf("it is tried again after %v", w.again)
	}
	w.clock.SetTime(w.clock.Now().Add(9 * time.Second))
	w.Must(w.reconcile())
	w.wantAgent("java", "idea")
	programs("java")
	w.Must(w.reconcile())
	w.wantAgent("java")
	programs("java", "bash")
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.Must(w.reconcile())
	w.wantAgent("java", "bash")
}

// TestWaitingForMoreProgramsIsReported has an agent wait for longer than a short interruption.
func TestWaitingForMoreProgramsIsReported(t *testing.T) {
	w := protected(t)
	w.r.RolloutFraction = 50_000
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"java", "idea"} })
	for range 20 { // Another agent always comes first.
		w.r.TakeRollout(w.clock.Now())
		w.Must(w.reconcile())
		w.clock.SetTime(w.clock.Now().Add(time.Second))
	}
	c := conditions.Get(w.sm, v1alpha1.OwnerProtectedCondition)
	if c == nil || c.Reason != v1alpha1.ConfigurationPendingReason || !strings.Contains(c.Message, "one part of them after the other") {
		t.Errorf("its owner must know: %+v", c)
	}
}

func TestAdds(t *testing.T) {
	old := reclaim.ConfigFor([]string{"java", `a"b`, "tab\t"}).Text()
	for _, tc := range []struct {
		programs []string
		adds     bool
	}{
		{nil, false},
		{[]string{"java"}, false},
		{[]string{"tab\t", `a"b`}, false},
		{[]string{"java", "idea"}, true},
		{[]string{"jav"}, true},
		{[]string{`a`}, true},
	} {
		if got := reclaim.ConfigFor(tc.programs).Adds(old); got != tc.adds {
			t.Errorf("%q: %t, want %t", tc.programs, got, tc.adds)
		}
	}
}
