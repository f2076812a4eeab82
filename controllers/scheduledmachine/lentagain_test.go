// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// justGivenBack is givenBack with a reclaim in the current minute.
func justGivenBack(t *testing.T, policy v1alpha1.ResumePolicy) *world {
	t.Helper()
	w := givenBack(t, policy)
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		sm.Annotations[v1alpha1.ReclaimedAnnotation] = java.Served(w.clock.Now()).String()
	})
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	return w
}

// enableAs enables the schedule like a program that writes with update or merge patch.
func (w *world) enableAs(manager string) {
	w.Helper()
	w.Read(w.sm)
	before := w.sm.DeepCopy()
	w.sm.Spec.Schedule.Enabled = new(true)
	w.Must(w.Client.Patch(w.Context(), w.sm, client.MergeFrom(before), client.FieldOwner(manager)))
}

// events returns the Events since the last call.
func (w *world) events() []string {
	var list []string
	for {
		select {
		case e := <-w.recorder.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func (w *world) toldOnce() bool { return w.countEvents(v1alpha1.LentAgainEvent) == 1 }

func TestAToolThatLendsAgainIsNamed(t *testing.T) {
	w := justGivenBack(t, v1alpha1.ResumeOnEnable)
	w.enableAs("argocd-controller")
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.LentAgainCondition, metav1.ConditionTrue, v1alpha1.EnabledByToolReason)
	for _, part := range []string{"argocd-controller", "managedFields", "resumeAfterReclaim: OnResume", "docs/gitops.md"} {
		if got := conditions.Get(w.sm, v1alpha1.LentAgainCondition).Message; !strings.Contains(got, part) {
			t.Errorf("%q is not in %q", part, got)
		}
	}
	if !w.toldOnce() {
		t.Error("there is one event")
	}

	// The mark is stored in an annotation, not in status.
	w.Must(w.Client.Status().Patch(w.Context(), w.sm, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`))))
	w.settle()
	w.want(v1alpha1.PhaseActive, v1alpha1.LentAgainCondition, metav1.ConditionTrue, v1alpha1.EnabledByToolReason)

	// No reconcile runs meanwhile. The mark's end is known, and no write follows.
	w.clock.SetTime(w.clock.Now().Add(lending.ReportFor - time.Second)) // 24 hours later, in the window again
	w.settle()
	w.Writes = nil
	if again := w.reconcile().RequeueAfter; len(w.Writes) > 0 || again > time.Second {
		t.Errorf("wrote %v, and wakes after %s, want nothing, and one second", w.Writes, again)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.settle()
	if conditions.Has(w.sm, v1alpha1.LentAgainCondition) || w.sm.Annotations[v1alpha1.LentAgainAnnotation] != "" {
		t.Errorf("it is over: %+v, %v", w.sm.Status.Conditions, w.sm.Annotations)
	}
}

func TestConditionLentAgainEnds(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ScheduledMachine){
		"OnResume": func(sm *v1alpha1.ScheduledMachine) { sm.Spec.ResumeAfterReclaim = v1alpha1.ResumeOnResume },
		"Off":      func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(false) },
		"Reclaim": func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule.Enabled = new(false)
			sm.Annotations[v1alpha1.ReclaimedAnnotation] = java.String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := justGivenBack(t, v1alpha1.ResumeOnEnable)
			w.enableAs("helm")
			w.settle()
			w.want(v1alpha1.PhaseActive, v1alpha1.LentAgainCondition, metav1.ConditionTrue, v1alpha1.EnabledByToolReason)
			w.edit(change)
			w.settle()
			if conditions.Has(w.sm, v1alpha1.LentAgainCondition) || w.sm.Annotations[v1alpha1.LentAgainAnnotation] != "" {
				t.Errorf("it is over: %+v, %v", w.sm.Status.Conditions, w.sm.Annotations)
			}
		})
	}
}

// TestLentAgainIsNotSetWithoutACause covers cases without the condition: a person lends the machine, a tool lends it
// long after the reclaim, or the policy is OnResume.
func TestLentAgainIsNotSetWithoutACause(t *testing.T) {
	for name, tc := range map[string]struct {
		policy  v1alpha1.ResumePolicy
		manager string
		after   time.Duration
	}{
		"Resume":   {v1alpha1.ResumeOnEnable, writer.Plugin, 0},
		"Edit":     {v1alpha1.ResumeOnEnable, "kubectl-edit", 0},
		"Later":    {v1alpha1.ResumeOnEnable, "argocd-controller", 10 * time.Minute},
		"OnResume": {v1alpha1.ResumeOnResume, "argocd-controller", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := justGivenBack(t, tc.policy)
			w.clock.SetTime(w.clock.Now().Add(tc.after))
			w.enableAs(tc.manager)
			w.settle()
			if w.toldOnce() || conditions.Has(w.sm, v1alpha1.LentAgainCondition) {
				t.Errorf("%+v", w.sm.Status.Conditions)
			}
		})
	}
}

// replace writes the manifest of a new object, like kubectl replace.
func (w *world) replace(change func(*v1alpha1.ScheduledMachine)) {
	w.Helper()
	w.Read(w.sm)
	manifest := testenv.ScheduledMachine(w.sm.Namespace, w.sm.Name)
	manifest.ResourceVersion = w.sm.ResourceVersion
	manifest.Spec.ResumeAfterReclaim = w.sm.Spec.ResumeAfterReclaim
	change(manifest)
	w.Must(w.Client.Update(w.Context(), manifest, client.FieldOwner("kubectl-replace")))
	w.settle()
}

// TestAReplacedManifestKeepsTheReclaim removes all metadata with kubectl replace, hours after the machine was
// returned.
func TestAReplacedManifestKeepsTheReclaim(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ScheduledMachine){
		"OnResume": func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(true) },
		"Default":  func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = nil },
		"Off": func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.ResumeAfterReclaim, sm.Spec.Schedule.Enabled = v1alpha1.ResumeOnEnable, new(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := givenBack(t, v1alpha1.ResumeOnResume)
			w.replace(change)
			w.want(v1alpha1.PhaseDisabled, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.EmergencyReclaimDisabledScheduleReason)
			if _, lent := w.machine(); lent || w.toldOnce() {
				t.Error("it is lent again")
			}
			// A person who resumes it changes only these fields; other metadata stays.
			w.edit(func(sm *v1alpha1.ScheduledMachine) {
				sm.Spec.Schedule.Enabled = new(true)
				delete(sm.Annotations, v1alpha1.ReclaimedAnnotation)
			})
			w.settle()
			if _, lent := w.machine(); !lent {
				t.Error("it was resumed, and is not lent")
			}
		})
	}
	t.Run("OnEnable", func(t *testing.T) {
		w := givenBack(t, v1alpha1.ResumeOnEnable)
		w.replace(func(*v1alpha1.ScheduledMachine) {})
		w.want(v1alpha1.PhaseActive, v1alpha1.LentAgainCondition, metav1.ConditionTrue, v1alpha1.EnabledByToolReason)
		if got := conditions.Get(w.sm, v1alpha1.LentAgainCondition).Message; !strings.Contains(got, "kubectl-replace replaced this ScheduledMachine") {
			t.Errorf("%q", got)
		}
		if !w.toldOnce() {
			t.Error("there is one event")
		}
	})
}

// TestAReplacedManifestBeforeTheStatusIsWritten replaces the object after the machine has left, but before the status
// shows the reclaim. The manager stopped in between.
func TestAReplacedManifestBeforeTheStatusIsWritten(t *testing.T) {
	for _, policy := range []v1alpha1.ResumePolicy{v1alpha1.ResumeOnResume, v1alpha1.ResumeOnEnable} {
		for name, served := range map[string]bool{"Served": true, "NotServedYet": false} {
			t.Run(string(policy)+name, func(t *testing.T) {
				w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
					sm.Spec.ResumeAfterReclaim = policy
					sm.Annotations = map[string]string{v1alpha1.EmergencyReclaimAnnotation: java.String()}
				})
				w.clock.SetTime(monday.Add(time.Hour))
				w.settle()
				if served {
					w.edit(func(sm *v1alpha1.ScheduledMachine) {
						delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation)
						sm.Spec.Schedule.Enabled = new(false)
						sm.SetServedReclaim(java)
					})
				}
				w.replace(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Enabled = new(true) })
				_, lent := w.machine()
				if onEnable := policy == v1alpha1.ResumeOnEnable; lent != onEnable || conditions.IsTrue(w.sm, v1alpha1.LentAgainCondition) != onEnable {
					t.Errorf("lent %t: %+v", lent, w.sm.Status.Conditions)
				}
			})
		}
	}
}

func TestACrashLosesNoLentAgain(t *testing.T) {
	testenv.CrashPoints(t, 6, func(t *testing.T, fail testenv.Fail) ([]string, int) {
		t.Helper()
		w := justGivenBack(t, v1alpha1.ResumeOnEnable)
		w.Writes, w.Fail = nil, fail
		w.enableAs("argocd-controller")
		w.survive()
		w.survive()
		w.Read(w.sm)
		_, lent := w.machine()
		stations := []string{string(w.sm.Status.Phase), w.sm.Annotations[v1alpha1.LentAgainAnnotation]}
		if !lent || !conditions.IsTrue(w.sm, v1alpha1.LentAgainCondition) {
			stations = append(stations, "not lent, or not reported")
		}
		return stations, len(w.Writes)
	})
}
