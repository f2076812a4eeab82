// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// held starts a manager that suppresses all writes.
func (w *world) held(gate *actuate.Gate) *bytes.Buffer {
	out := &bytes.Buffer{}
	gate.Log = audit.New(out)
	c := testenv.Gated(gate.Transport, w.Recorded(interceptor.Funcs{}))
	w.r = w.reconciler(c)
	w.r.Actuate = actuate.NewGated(gate, c)
	w.Writes = nil
	return out
}

// actions returns kind, reason and outcome of the lines of an audit log.
func (w *world) actions(out *bytes.Buffer) []string {
	w.Helper()
	var all []string
	for text := range strings.Lines(out.String()) {
		var l audit.Line
		w.Must(json.Unmarshal([]byte(text), &l))
		if l.Machine != w.sm.Namespace+"/box" || l.Cluster != w.sm.Namespace+"/lab" {
			w.Errorf("line %s", text)
		}
		all = append(all, strings.Join([]string{string(l.Kind), l.Reason, string(l.Outcome)}, " "))
	}
	return all
}

// modes are the ways to suppress writes, with the writes that remain and their audit outcome.
var modes = map[string]struct {
	paused, dryRun bool
	writes         []string
	outcome        string
}{
	"Paused": {true, false, []string{"patch ScheduledMachine status"}, "suppressed"},
	"DryRun": {false, true, nil, "dryrun"},
	"Both":   {true, true, nil, "suppressed"},
}

// TestAPauseSuppressesEveryAction covers each cause for a machine to join or leave.
func TestAPauseSuppressesEveryAction(t *testing.T) {
	stories := map[string]struct {
		reason  string
		running bool
		happens func(*world)
		// action is the audited action. ready and gated are the conditions that people see.
		action, ready string
		gated         bool
		// then is the first write of the next manager without suppression.
		then string
	}{
		"WindowOpens": {
			"A machine that would join does not.", false,
			func(w *world) { w.clock.SetTime(monday.Add(time.Hour)) },
			"Join WindowOpen", v1alpha1.ActuationPausedReason, false, "create GenericBootstrapConfig",
		},
		"WindowEnds": {
			"A machine that would leave stays, and its owner sees why.", true,
			func(w *world) { w.clock.SetTime(monday.Add(10 * time.Hour)) },
			"Depart WindowClosed", v1alpha1.ActuationPausedReason, true, "delete Machine",
		},
		"KillSwitch": {
			"A button that stops everything stops this, too.", true,
			func(w *world) { w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }) },
			string(audit.KillSwitch) + " KillSwitch", v1alpha1.ActuationPausedReason, true, "delete Machine",
		},
		"Deleted": {
			"The person who deletes the object may have meant another.", true,
			func(w *world) { w.Must(w.Client.Delete(w.Context(), w.sm)) },
			"Depart Deleted", v1alpha1.ActuationPausedReason, true, "delete Machine",
		},
		"DeletedByOthers": {
			"It waits at our hook, which departure.HookReconciler reports.", true,
			func(w *world) {
				m, _ := w.machine()
				w.Must(w.Client.Delete(w.Context(), m))
			},
			"", v1alpha1.ActuationPausedReason, true, "",
		},
		"DeletedPastOurHook": {
			"The Machine is Cluster API's by then. Nothing of ours is added.", true,
			func(w *world) {
				m, _ := w.machine()
				w.Edit(m, func() { delete(m.Annotations, v1alpha1.PreDrainHookAnnotation) })
				w.Must(w.Client.Delete(w.Context(), m))
			},
			"", v1alpha1.ShuttingDownReason, false, "",
		},
		"OwnerAsksOnTheNode": {
			"Package reclaim holds the request, and says so.", true,
			func(w *world) {
				w.r.ReclaimTracker.RecordStuck(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}, "because of a pause", "held")
			},
			"", v1alpha1.ActuationPausedReason, true, "",
		},
		"OwnerHasIt": {
			"The Machine is gone, and package reclaim turns the schedule off after the pause.", true,
			func(w *world) {
				w.edit(func(sm *v1alpha1.ScheduledMachine) {
					metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, v1alpha1.PersonsRequest("", "", w.clock.Now()).String())
				})
				m, _ := w.machine()
				w.Must(w.Client.Delete(w.Context(), m))
				w.letGo(m)
				w.r.ReclaimTracker.RecordStuck(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}, "because of a pause", "held")
			},
			"", v1alpha1.ActuationPausedReason, false, "",
		},
		"Nothing": {
			"What is settled is not touched.", true, func(*world) {},
			"", v1alpha1.MachineRunningReason, false, "",
		},
	}
	for mode, m := range modes {
		for name, tc := range stories {
			t.Run(mode+name, func(t *testing.T) {
				w := newWorld(t, nil)
				w.settle()
				if tc.running {
					w.running()
				}
				phase, conditionsBefore := w.sm.Status.Phase, len(w.sm.Status.Conditions)
				out := w.held(&actuate.Gate{Paused: m.paused, DryRun: m.dryRun})
				tc.happens(w)
				for range 3 {
					if res := w.reconcile(); res.RequeueAfter > 0 && res.RequeueAfter < time.Second {
						t.Errorf("%s\nlooks again after %v", tc.reason, res.RequeueAfter)
					}
					w.clock.SetTime(w.clock.Now().Add(20 * time.Second))
				}
				for _, write := range w.Writes {
					if !slices.Contains(m.writes, write) {
						t.Errorf("%s\nsent: %v", tc.reason, w.Writes)
					}
				}
				if len(w.Writes) > 1 {
					t.Errorf("%s\na settled machine is written again: %v", tc.reason, w.Writes)
				}
				var want []string
				if tc.action != "" {
					want = []string{tc.action + " " + m.outcome}
				}
				if diff := cmp.Diff(want, slices.Compact(w.actions(out))); diff != "" {
					t.Errorf("%s\n-want, +recorded:\n%s", tc.reason, diff)
				}
				if w.sm.Status.Phase != phase {
					t.Errorf("%s\nphase %s became %s", tc.reason, phase, w.sm.Status.Phase)
				}
				if m.writes == nil {
					if len(w.sm.Status.Conditions) != conditionsBefore {
						t.Errorf("%s\nconditions %v", tc.reason, w.sm.Status.Conditions)
					}
				} else {
					w.want(phase, v1alpha1.ReadyCondition, conditions.Get(w.sm, v1alpha1.ReadyCondition).Status, tc.ready)
					if got := conditions.GetReason(w.sm, v1alpha1.DepartureGatedCondition) == v1alpha1.ActuationPausedReason; got != tc.gated {
						t.Errorf("%s\ngated: %v", tc.reason, w.sm.Status.Conditions)
					}
				}
				w.r = w.reconciler(w.Recorded(interceptor.Funcs{}))
				w.Writes = nil
				w.settle()
				if tc.then != "" && !slices.Contains(w.Writes, tc.then) {
					t.Errorf("%s\nafter the pause: %v", tc.reason, w.Writes)
				}
				if conditions.Has(w.sm, v1alpha1.DepartureGatedCondition) {
					t.Errorf("%s\nafter the pause: %v", tc.reason, w.sm.Status.Conditions)
				}
			})
		}
	}
}

// TestTheLaneOfASuppressedDeparture covers a window that ends as announced, and a schedule that is edited.
func TestTheLaneOfASuppressedDeparture(t *testing.T) {
	for mode, m := range modes {
		for name, tc := range map[string]struct {
			happens func(*world)
			want    v1alpha1.DepartureLane
		}{
			"Announced": {func(w *world) { w.clock.SetTime(monday.Add(10 * time.Hour)) }, v1alpha1.ScheduledLane},
			"Edited": {func(w *world) {
				w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.DaysOfWeek = []string{"sun"} })
			}, v1alpha1.UnscheduledLane},
			"ClusterGoes": {func(w *world) {
				w.Edit(w.cluster, func() { w.cluster.Finalizers = []string{clusterv1.ClusterFinalizer} })
				w.Must(w.Client.Delete(w.Context(), w.cluster))
			}, v1alpha1.ExemptLane},
		} {
			t.Run(mode+name, func(t *testing.T) {
				w := newWorld(t, nil)
				w.settle()
				w.running()
				out := w.held(&actuate.Gate{Paused: m.paused, DryRun: m.dryRun})
				tc.happens(w)
				for range 3 {
					w.reconcile()
				}
				if n := strings.Count(out.String(), "\n"); n == 0 || n != strings.Count(out.String(), `"lane":"`+string(tc.want)+`"`) {
					t.Errorf("recorded %s", out)
				}
			})
		}
	}
}

// TestAPauseOfManyWindows covers a machine that missed its windows for three days.
func TestAPauseOfManyWindows(t *testing.T) {
	w := newWorld(t, nil)
	w.settle()
	w.running()
	out := w.held(&actuate.Gate{Paused: true})
	for day := range 3 {
		closes, opens := monday.AddDate(0, 0, day).Add(9*time.Hour+time.Second), monday.AddDate(0, 0, day+1).Add(time.Second)
		w.clock.SetTime(closes)
		if res := w.reconcile(); res.RequeueAfter != opens.Sub(closes) {
			t.Fatalf("day %d: looks again after %v, and the window opens in %v", day, res.RequeueAfter, opens.Sub(closes))
		}
		w.want(v1alpha1.PhaseActive, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.ActuationPausedReason)
		w.want(v1alpha1.PhaseActive, v1alpha1.ScheduledCondition, metav1.ConditionFalse, v1alpha1.ScheduleInactiveReason)
		if !w.sm.Status.NextActivation.Time.Equal(opens) {
			t.Errorf("day %d: opens at %v", day, w.sm.Status.NextActivation)
		}
		w.clock.SetTime(opens)
		w.reconcile()
		w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
		if conditions.Has(w.sm, v1alpha1.DepartureGatedCondition) {
			t.Errorf("day %d: it is wanted again: %v", day, w.sm.Status.Conditions)
		}
	}
	const line = "Depart WindowClosed suppressed"
	if diff := cmp.Diff([]string{line, line, line}, w.actions(out)); diff != "" {
		t.Errorf("each is suppressed:\n%s", diff)
	}
	if slices.ContainsFunc(w.Writes, func(s string) bool { return s != "patch ScheduledMachine status" }) {
		t.Errorf("sent %v", w.Writes)
	}
}

// TestAPausedManagerShowsWhatIsNew creates an object that no manager has reconciled.
func TestAPausedManagerShowsWhatIsNew(t *testing.T) {
	for mode, m := range modes {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, nil)
			w.clock.SetTime(monday.Add(time.Hour))
			out := w.held(&actuate.Gate{Paused: m.paused, DryRun: m.dryRun})
			for range 3 {
				w.reconcile()
			}
			if diff := cmp.Diff([]string{"Join WindowOpen " + m.outcome}, slices.Compact(w.actions(out))); diff != "" {
				t.Errorf("the whole decision is reported:\n%s", diff)
			}
			if w.sm.Status.Phase != "" || len(w.sm.Finalizers) > 0 || w.sm.Status.InSchedule != (m.writes != nil) {
				t.Errorf("phase %s, finalizers %v, in schedule %t", w.sm.Status.Phase, w.sm.Finalizers, w.sm.Status.InSchedule)
			}
		})
	}
}

// TestEveryObjectOfAMachineHasALine covers a machine that joins and leaves. The API server rejects the first try of
// each creation, and loses the response of another.
func TestEveryObjectOfAMachineHasALine(t *testing.T) {
	w := newWorld(t, nil)
	out := w.held(&actuate.Gate{})
	refused := map[string]bool{}
	w.Fail = func(n int) (before, after error) {
		what := w.Writes[n]
		if refused[what] || !strings.HasPrefix(what, "create ") && what != "apply Machine" {
			return nil, nil
		}
		refused[what] = true
		if what == "create GenericInfrastructureMachine" {
			return nil, testenv.ErrLost
		}
		return testenv.ErrLost, nil
	}
	w.clock.SetTime(monday.Add(time.Hour))
	for range 15 {
		w.reconcile()
		w.clock.SetTime(w.clock.Now().Add(30 * time.Second))
	}
	outcomes := map[audit.Outcome]int{}
	for text := range strings.Lines(out.String()) {
		var l audit.Line
		w.Must(json.Unmarshal([]byte(text), &l))
		if l.Kind != audit.Join || l.Lane != "" || l.Reason != "WindowOpen" {
			t.Errorf("line %s", text)
		}
		outcomes[l.Outcome]++
	}
	if diff := cmp.Diff(map[audit.Outcome]int{audit.APIError: 3, audit.Success: 2}, outcomes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
