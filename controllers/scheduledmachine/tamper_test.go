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
)

// A mark is something of ours on an object, which anybody who may write the object may
// take off or change.
type mark struct {
	on func(*world) client.Object
	// tamper takes it off, or changes it.
	tamper func(client.Object)
	// back reports whether it is there again; nil where nobody needs it to be.
	back func(client.Object, *world) bool
}

func onMachine(w *world) client.Object        { m, _ := w.machine(); return m }
func onBootstrap(w *world) client.Object      { b, _ := w.bootstrap(); return b }
func onInfrastructure(w *world) client.Object { i, _ := w.infra(); return i }
func onScheduledMachine(w *world) client.Object {
	w.Read(w.sm)
	return w.sm
}

// set returns a change of one label or annotation; an empty value takes it off.
func set(get func(client.Object) map[string]string, put func(client.Object, map[string]string), key, value string) func(client.Object) {
	return func(obj client.Object) {
		m := get(obj)
		delete(m, key)
		if value != "" {
			m[key] = value
		}
		put(obj, m)
	}
}

func label(key, value string) func(client.Object) {
	return set(client.Object.GetLabels, client.Object.SetLabels, key, value)
}

func annotation(key, value string) func(client.Object) {
	return set(client.Object.GetAnnotations, client.Object.SetAnnotations, key, value)
}

func labelled(obj client.Object, w *world) bool {
	return obj.GetLabels()[v1alpha1.ScheduledMachineLabel] == w.sm.Name
}

func owned(obj client.Object, w *world) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.UID == w.sm.UID {
			return true
		}
	}
	return false
}

func marks() map[string]mark {
	all := map[string]mark{
		"FinalizerOff": {onScheduledMachine, func(o client.Object) { o.SetFinalizers(nil) }, func(o client.Object, _ *world) bool { return len(o.GetFinalizers()) > 0 }},
		"ClusterOff":   {onScheduledMachine, func(o client.Object) { o.SetOwnerReferences(nil) }, func(o client.Object, _ *world) bool { return len(o.GetOwnerReferences()) > 0 }},
	}
	for name, on := range map[string]func(*world) client.Object{"Machine": onMachine, "Bootstrap": onBootstrap, "Infrastructure": onInfrastructure} {
		all[name+"LabelOff"] = mark{on, label(v1alpha1.ScheduledMachineLabel, ""), labelled}
		all[name+"LabelOfAnother"] = mark{on, label(v1alpha1.ScheduledMachineLabel, "another"), labelled}
		all[name+"OwnerOff"] = mark{on, func(o client.Object) { o.SetOwnerReferences(nil) }, owned}
	}
	for name, on := range map[string]func(*world) client.Object{"Bootstrap": onBootstrap, "Infrastructure": onInfrastructure} {
		all[name+"HashOff"] = mark{on, annotation(v1alpha1.SpecHashAnnotation, ""), nil}
		all[name+"HashChanged"] = mark{on, annotation(v1alpha1.SpecHashAnnotation, "another"), nil}
	}
	for name, key := range map[string]string{
		"AppliedHash": v1alpha1.AppliedHashAnnotation, "Created": v1alpha1.CreatedAnnotation,
		"PreDrain": v1alpha1.PreDrainHookAnnotation, "PreTerminate": v1alpha1.PreTerminateHookAnnotation,
	} {
		all[name+"Off"] = mark{onMachine, annotation(key, ""), nil}
		all[name+"Changed"] = mark{onMachine, annotation(key, "nonsense"), nil}
	}
	return all
}

// tampered are the phases in which somebody tampers, and how a running machine gets there.
var tampered = map[string]func(*world){
	"Active":       func(*world) {},
	"Disabled":     func(w *world) { w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) }) },
	"ShuttingDown": func(w *world) { w.clock.SetTime(monday.Add(9 * time.Hour)) },
	"Terminated":   func(w *world) { w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }) },
	"Deleting":     func(w *world) { w.Must(w.Client.Delete(w.Context(), w.sm)) },
}

// story is what is seen of a machine that somebody tampers with in a phase, and that
// leaves afterwards.
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

// seen is what there is of the machine, and what people are told of it.
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

func TestNoMarkOfOursIsLoadBearing(t *testing.T) {
	for phase, enter := range tampered {
		want := story(t, enter, func(*world) {})
		for name, m := range marks() {
			if phase == "Deleting" && name == "FinalizerOff" {
				continue // Then there is no object any more, and its machine runs on: docs/threat-model.md.
			}
			t.Run(phase+"/"+name, func(t *testing.T) {
				got := story(t, enter, func(w *world) {
					obj := m.on(w)
					leaving := !obj.GetDeletionTimestamp().IsZero() || !w.sm.DeletionTimestamp.IsZero()
					before := obj.DeepCopyObject().(client.Object)
					m.tamper(obj)
					w.Must(w.Client.Patch(w.Context(), obj, client.MergeFrom(before)))
					w.settle()
					ownership := len(before.GetOwnerReferences()) != len(obj.GetOwnerReferences())
					if now := m.on(w); m.back != nil && !m.back(now, w) && (!ownership || !leaving) {
						t.Errorf("it is not put back: %+v", now)
					}
				})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-without, +with somebody who tampers:\n%s", diff)
				}
			})
		}
	}
}
