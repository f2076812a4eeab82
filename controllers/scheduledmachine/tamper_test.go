// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// marked returns an object that has marks.
func (w *world) marked(on string) client.Object {
	switch on {
	case testenv.OnMachine:
		m, _ := w.machine()
		return m
	case testenv.OnBootstrap:
		b, _ := w.bootstrap()
		return b
	case testenv.OnInfrastructure:
		i, _ := w.infra()
		return i
	default:
		w.Read(w.sm)
		return w.sm
	}
}

// tampered has the phases in which the test tampers, with the change that leads a running machine there.
var tampered = map[string]func(*world){
	"Active":       func(*world) {},
	"Disabled":     func(w *world) { w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) }) },
	"ShuttingDown": func(w *world) { w.clock.SetTime(monday.Add(9 * time.Hour)) },
	"Terminated":   func(w *world) { w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }) },
	"Deleting":     func(w *world) { w.Must(w.Client.Delete(w.Context(), w.sm)) },
}

// story returns the observed states of a machine that is tampered with in a phase, and that leaves afterwards.
func story(t *testing.T, enter func(*world), tamper func(*world)) []string {
	t.Helper()
	w := newWorld(t, nil)
	w.running()
	enter(w)
	w.settle()
	tamper(w)
	w.settle()
	seen := []string{w.seen()}
	if w.sm.DeletionTimestamp.IsZero() {
		w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(true) })
		w.clock.SetTime(monday.Add(9 * time.Hour))
		w.settle()
		seen = append(seen, w.seen())
	}
	w.gone()
	for range 3 {
		w.reconcile()
	}
	return append(seen, w.seen())
}

// seen returns the state of the machine, and the status that people see.
func (w *world) seen() string {
	w.Helper()
	if !w.Read(w.sm) {
		return "released"
	}
	there := func(obj client.Object, exists bool) string {
		switch {
		case !exists:
			return "gone"
		case obj.GetDeletionTimestamp().IsZero():
			return "there"
		default:
			return "leaving"
		}
	}
	m, mok := w.machine()
	b, bok := w.bootstrap()
	i, iok := w.infra()
	st := w.sm.Status
	return fmt.Sprintf("%s %s machine=%s bootstrap=%s infrastructure=%s refs=%t,%t,%t node=%t", st.Phase,
		conditions.GetReason(w.sm, v1alpha1.ReadyCondition), there(m, mok), there(b, bok), there(i, iok),
		st.MachineRef != nil, st.BootstrapRef != nil, st.InfrastructureRef != nil, st.NodeRef != nil)
}

func TestTamperedMetadataChangesNoOutcome(t *testing.T) {
	t.Parallel()
	for phase, enter := range tampered {
		want := story(t, enter, func(*world) {})
		for name, m := range testenv.Sample(testenv.Marks()) {
			if phase == "Deleting" && name == "FinalizerOff" {
				continue // The object is deleted then, and its machine continues to run: docs/threat-model.md.
			}
			t.Run(phase+"/"+name, func(t *testing.T) {
				t.Parallel()
				got := story(t, enter, func(w *world) {
					obj := w.marked(m.On)
					leaving := !obj.GetDeletionTimestamp().IsZero() || !w.sm.DeletionTimestamp.IsZero()
					before := obj.DeepCopyObject().(client.Object)
					m.Tamper(obj)
					w.Must(w.Client.Patch(w.Context(), obj, client.MergeFrom(before)))
					w.settle()
					ownership := len(before.GetOwnerReferences()) != len(obj.GetOwnerReferences())
					if now := w.marked(m.On); m.Back != nil && !m.Back(now, w.sm) && (!ownership || !leaving) {
						t.Errorf("it is not put back: %+v", now)
					}
				})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-without, +with tampering:\n%s", diff)
				}
			})
		}
	}
}
