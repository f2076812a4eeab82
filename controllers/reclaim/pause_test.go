// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAnOwnerWaitsForTheEndOfAPause covers a request while writes are suppressed.
func TestAnOwnerWaitsForTheEndOfAPause(t *testing.T) {
	asks := map[string]struct {
		ask func(*world)
		by  string
	}{
		"Node":   {func(w *world) { w.annotate("true") }, "process-match: java"},
		"Person": {(*world).askAsPerson, "asked by a person: Ada needs it"},
	}
	modes := map[string]struct {
		gate    *actuate.Gate
		outcome string
		loud    bool
	}{
		"Paused": {&actuate.Gate{Paused: true}, "suppressed", true},
		"DryRun": {&actuate.Gate{DryRun: true}, "dryrun", false},
		"Both":   {&actuate.Gate{Paused: true, DryRun: true}, "suppressed", true},
	}
	for name, ask := range asks {
		for mode, m := range modes {
			t.Run(mode+name, func(t *testing.T) {
				w, out := newWorld(t), &bytes.Buffer{}
				ask.ask(w)
				w.Writes = nil
				m.gate.Log = audit.New(out)
				c := testenv.Gated(m.gate.Transport, w.Recorded(interceptor.Funcs{}))
				w.r = w.reconciler(c)
				w.r.Actuate = actuate.NewGated(m.gate, c)
				for range 3 {
					if res, err := w.reconcile(); err != nil || res.RequeueAfter > 0 {
						t.Errorf("it is tried again: %v, %v", res, err)
					}
				}
				if len(w.Writes) > 0 || w.machine().DeletionTimestamp != nil {
					t.Errorf("sent %v", w.Writes)
				}
				if text := out.String(); strings.Count(text, "\n") != 3 || !strings.Contains(text, `"kind":"EmergencyRemove"`) ||
					!strings.Contains(text, `"outcome":"`+m.outcome+`"`) || !strings.Contains(text, `"lane":"exempt"`) || !strings.Contains(text, `"by":"`+ask.by+`"`) {
					t.Errorf("told %s", text)
				}
				stalled := w.tracker.StuckReason(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)})
				notes := w.events()
				if loud := len(notes) == 1 && strings.HasPrefix(notes[0], "Warning "+v1alpha1.EmergencySuppressedEvent); loud != m.loud || m.loud != (stalled != "") || !m.loud && len(notes) > 0 {
					t.Errorf("events %q, stalled %q", notes, stalled)
				}
				w.settle() // The next manager suppresses nothing.
				if w.machine().DeletionTimestamp.IsZero() || w.infra().GetDeletionTimestamp().IsZero() {
					t.Errorf("the request is forgotten: %v", w.Writes)
				}
			})
		}
	}
}

// TestWhichUpdatesOfAScheduledMachineCount checks that a request is found when the watch label is added after it.
func TestWhichUpdatesOfAScheduledMachineCount(t *testing.T) {
	changes := map[string]struct {
		change func(*v1alpha1.ScheduledMachine)
		want   bool
	}{
		"Status":     {func(sm *v1alpha1.ScheduledMachine) { sm.Status.Phase = v1alpha1.PhaseActive }, false},
		"Spec":       {func(sm *v1alpha1.ScheduledMachine) { sm.Generation++ }, true},
		"Annotation": {func(sm *v1alpha1.ScheduledMachine) { sm.Annotations = map[string]string{"a": "b"} }, true},
		"Label":      {func(sm *v1alpha1.ScheduledMachine) { sm.Labels = map[string]string{clusterv1.WatchLabel: "mine"} }, true},
	}
	for name, tc := range changes {
		before := testenv.ScheduledMachine("default", "box")
		after := before.DeepCopy()
		tc.change(after)
		if got := reclaim.ScheduledMachineChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestAMachineThatTheCacheDoesNotShow covers a person's request for a Machine that was created just before.
func TestAMachineThatTheCacheDoesNotShow(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	c := w.Recorded(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, ok := obj.(*clusterv1.Machine); ok {
			return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("machines").GroupResource(), key.Name)
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	w.until(func() { w.r = w.reconciler(c); w.r.Children.Live = w.Client })
	if w.Read(w.sm); w.machine().DeletionTimestamp.IsZero() || !w.sm.ScheduleEnabled() || !w.sm.BeingReclaimed() {
		t.Errorf("the Machine runs, and the request ended: enabled %t, %v", w.sm.ScheduleEnabled(), w.Writes)
	}
}

// suppresses reconciles while actuation is paused. No write follows, and one Event has the text.
func (w *world) suppresses(text string) {
	w.Helper()
	for range 3 {
		if res, err := w.reconcile(); err != nil || res.RequeueAfter > 0 {
			w.Errorf("it is tried again: %v, %v", res, err)
		}
	}
	notes := w.events()
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "Warning "+v1alpha1.EmergencySuppressedEvent+" ") || !strings.Contains(notes[0], text) || len(w.Writes) > 0 {
		w.Errorf("Events %q, sent %v", notes, w.Writes)
	}
}

// TestAPauseIsReportedWhileARequestIsLost pauses after the deletion of the Machine. A tool then removes the request from
// the ScheduledMachine.
func TestAPauseIsReportedWhileARequestIsLost(t *testing.T) {
	w := newWorld(t)
	w.askAsPerson()
	w.settle()
	w.Edit(w.sm, func() { delete(w.sm.Annotations, v1alpha1.EmergencyReclaimAnnotation) })
	w.Writes = nil
	gate := &actuate.Gate{Paused: true}
	c := testenv.Gated(gate.Transport, w.Recorded(interceptor.Funcs{}))
	w.r = w.reconciler(c)
	w.r.Actuate = actuate.NewGated(gate, c)
	w.events()
	w.suppresses("the request was removed from the ScheduledMachine")
}

// TestAReclaimStopsWhereThePauseBegins pauses after the deletion of the Machine.
func TestAReclaimStopsWhereThePauseBegins(t *testing.T) {
	w, out := newWorld(t), &bytes.Buffer{}
	w.annotate("true")
	w.settle()
	w.gone()
	w.Writes = nil
	gate := &actuate.Gate{Paused: true, Log: audit.New(out)}
	c := testenv.Gated(gate.Transport, w.Recorded(interceptor.Funcs{}))
	w.r = w.reconciler(c)
	w.r.Actuate = actuate.NewGated(gate, c)
	w.events()
	w.suppresses("the schedule is turned off when the pause ends")
	if w.Read(w.sm); !w.sm.ScheduleEnabled() || !w.sm.BeingReclaimed() {
		t.Errorf("sent %v", w.Writes)
	}
	w.settle()
	if w.sm.ScheduleEnabled() || w.Read(w.node) {
		t.Errorf("after the pause: %v", w.Writes)
	}
}
