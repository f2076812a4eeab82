// SPDX-License-Identifier: Apache-2.0

package machinehook_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// burst is a roster that has just served ten kill switches of other machines of the Cluster.
func (w *world) burst() *roster.Roster {
	w.Helper()
	turns, now := &roster.Roster{WipeGuard: true}, w.clock.Now()
	for i := range 10 {
		name := types.NamespacedName{Namespace: w.sm.Namespace, Name: fmt.Sprint("other-", i)}
		turns.Tell(name, roster.Entry{Cluster: client.ObjectKeyFromObject(w.cluster), Machine: "other", Killed: true}, now)
		turns.Kill(name, "other", now)
	}
	return turns
}

// TestAKillSwitchOfABurstWaitsAtTheHook has somebody delete the Machine: that is no way past
// the others, and it waits no longer than they do.
func TestAKillSwitchOfABurstWaitsAtTheHook(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.sm.Spec.KillSwitch = true
	w.Must(w.Client.Update(w.Context(), w.sm))
	w.restart()
	w.r.Roster = w.burst()
	if again := w.settle(); again != 30*time.Second || w.held() != "pre-drain pre-terminate" || len(w.Writes) > 0 {
		t.Errorf("again in %s, held by %q, wrote %v", again, w.held(), w.Writes)
	}
	w.plan(w.r.Roster)
	if v := w.r.Roster.Kill(client.ObjectKeyFromObject(w.sm), w.machine.UID, w.clock.Now()); v.Reason != departure.KillSwitchBurst {
		t.Errorf("its ScheduledMachine is told %+v", v)
	}
	w.clock.SetTime(w.clock.Now().Add(30 * time.Second))
	w.settle()
	if w.held() != "" {
		t.Errorf("after half a minute it is held by %q", w.held())
	}
	if d, ok := v1alpha1.ParseDeparture(w.machine.Annotations[v1alpha1.DepartureAnnotation]); !ok || d.Reason != v1alpha1.KilledByPerson || d.Lane != v1alpha1.ExemptLane {
		t.Errorf("on record is %+v", d)
	}
}

// TestNobodyWaitsInABurstWhoMustNot has ten kill switches be served just before.
func TestNobodyWaitsInABurstWhoMustNot(t *testing.T) {
	for name, change := range map[string]func(*world){
		"Owner": func(w *world) {
			w.sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: "{}"}
			w.Must(w.Client.Update(w.Context(), w.sm))
		},
		"ClusterGoes": (*world).clusterGoes,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leave()
			w.sm.Spec.KillSwitch = true
			w.Must(w.Client.Update(w.Context(), w.sm))
			change(w)
			w.restart()
			w.r.Roster = w.burst()
			w.settle()
			if w.held() != "" {
				t.Errorf("held by %q, wrote %v", w.held(), w.Writes)
			}
		})
	}
}
