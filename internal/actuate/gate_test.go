// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var at = time.Date(2026, time.March, 2, 17, 0, 0, 0, time.UTC)

// lines returns the lines of an audit log. Each must be JSON.
func lines(t *testing.T, out *bytes.Buffer) []audit.Line {
	t.Helper()
	var all []audit.Line
	for text := range strings.Lines(out.String()) {
		var l audit.Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

// told returns lines in a comparable form. It numbers ids by their first occurrence.
func told(all []audit.Line) []string {
	var ids, says []string
	for _, l := range all {
		id, step, _ := strings.Cut(l.ActionID, "/")
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		says = append(says, strings.TrimSpace(fmt.Sprint(l.Kind, " ", l.Outcome, " ", l.Attempt, " id", slices.Index(ids, id), " ", step)))
	}
	return says
}

func window(m *clusterv1.Machine) actuate.Intent {
	return actuate.Intent{
		Reason: v1alpha1.WindowClosed, At: at, Machine: client.ObjectKeyFromObject(m),
		Cluster: client.ObjectKey{Namespace: m.Namespace, Name: "lab"}, Trigger: "17:00", Grace: 5 * time.Minute,
	}
}

// TestEveryTryHasALine has an API server that rejects the deletion of a Machine twice.
func TestEveryTryHasALine(t *testing.T) {
	f, out := server.Fixture(t), &bytes.Buffer{}
	m := machine(f, f.Namespace(t))
	a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Recorded(interceptor.Funcs{}))
	refusals := 2
	f.Fail = func(n int) (before, after error) {
		if f.Writes[n] == "delete Machine" && refusals > 0 {
			refusals--
			return testenv.ErrLost, nil
		}
		return nil, nil
	}
	for range 4 { // The last has nothing to do.
		f.Read(m)
		if err := a.For(window(m)).Depart(t.Context(), &children.Set{Machine: m.DeepCopy()}); err != nil && !apierrors.IsInternalError(err) {
			t.Fatal(err)
		}
	}
	f.Read(m)
	all := lines(t, out)
	if diff := cmp.Diff([]string{"Depart api_error 1 id0", "Depart api_error 2 id0", "Depart success 3 id0"}, told(all)); diff != "" {
		t.Error(diff)
	}
	d, _ := children.DepartureOf(m, at)
	want := audit.Line{
		Time: at, Kind: audit.Depart, Machine: m.Namespace + "/box", Cluster: m.Namespace + "/lab", Reason: "WindowClosed", GraceSeconds: 300,
		Outcome: audit.Success, ActionID: d.ActionID, Lane: "scheduled", Attempt: 3, UID: string(m.UID),
	}
	if diff := cmp.Diff(want, all[len(all)-1]); diff != "" {
		t.Errorf("the id is that of the record on the Machine:\n%s", diff)
	}
}

// TestAnAnswerThatIsLost deletes the Machine and loses the response.
func TestAnAnswerThatIsLost(t *testing.T) {
	f, out := server.Fixture(t), &bytes.Buffer{}
	m := machine(f, f.Namespace(t))
	a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Recorded(interceptor.Funcs{}))
	f.Fail = func(n int) (before, after error) {
		if f.Writes[n] == "delete Machine" {
			return nil, testenv.ErrLost
		}
		return nil, nil
	}
	_ = a.For(window(m)).Depart(t.Context(), &children.Set{Machine: m.DeepCopy()})
	a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m}, true, at)
	if got := told(lines(t, out)); len(got) != 1 {
		t.Errorf("a cache that is late says nothing of it: %v", got)
	}
	f.Read(m)
	for range 2 {
		a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m}, true, at)
	}
	a.Forget(client.ObjectKeyFromObject(m), at)
	if diff := cmp.Diff([]string{"Depart api_error 1 id0", "Depart success 1 id0"}, told(lines(t, out))); diff != "" {
		t.Error(diff)
	}
}

// TestWhatIsGivenUpHasAnEnd rejects a departure, which the kill switch then replaces.
func TestWhatIsGivenUpHasAnEnd(t *testing.T) {
	f, out := server.Fixture(t), &bytes.Buffer{}
	m := machine(f, f.Namespace(t))
	a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Recorded(interceptor.Funcs{}))
	f.Fail = func(int) (before, after error) { return testenv.ErrLost, nil }
	_ = a.For(window(m)).Depart(t.Context(), &children.Set{Machine: m.DeepCopy()})
	later := window(m)
	later.Trigger = "17:00 of the next day"
	_ = a.For(later).Depart(t.Context(), &children.Set{Machine: m.DeepCopy()})
	a.Forget(client.ObjectKeyFromObject(m), at)
	want := []string{"Depart api_error 1 id0", "Depart canceled 1 id0", "Depart api_error 1 id1", "Depart canceled 1 id1"}
	if diff := cmp.Diff(want, told(lines(t, out))); diff != "" {
		t.Error(diff)
	}
}

// TestARemovalThatIsRefusedIsNoSuccess requests a Machine for its owner that another client deletes. The API
// server rejects all writes at first. The deletion by the other client must not count as a success.
func TestARemovalThatIsRefusedIsNoSuccess(t *testing.T) {
	f, out := server.Fixture(t), &bytes.Buffer{}
	m := machine(f, f.Namespace(t))
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(builder.InfrastructureGroupVersion.WithKind(builder.GenericInfrastructureMachineKind))
	infra.SetNamespace(m.Namespace)
	infra.SetName("box")
	infra.SetFinalizers([]string{"test/provider"})
	f.Create(infra)
	f.Must(f.Client.Delete(t.Context(), m))
	a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Recorded(interceptor.Funcs{}))
	owner := window(m)
	owner.Reason, owner.Trigger = v1alpha1.ReclaimedByOwner, "asked"
	f.Fail = func(int) (before, after error) { return testenv.ErrLost, nil }
	for i := range 4 {
		if i == 3 {
			f.Fail = nil
		}
		f.Read(m)
		f.Read(infra)
		a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m.DeepCopy(), infra.DeepCopy()}, true, at)
		_, err := a.For(owner).Remove(t.Context(), &children.Set{Machine: m.DeepCopy(), Infrastructure: infra.DeepCopy()}, children.BypassHooks)
		if (err == nil) != (i == 3) {
			t.Fatal(err)
		}
	}
	want := []string{
		"EmergencyRemove api_error 1 id0", "EmergencyRemove api_error 1 id0 GenericInfrastructureMachine",
		"EmergencyRemove api_error 2 id0", "EmergencyRemove api_error 2 id0 GenericInfrastructureMachine",
		"EmergencyRemove api_error 3 id0", "EmergencyRemove api_error 3 id0 GenericInfrastructureMachine",
		"EmergencyRemove success 4 id0", "EmergencyRemove success 4 id0 GenericInfrastructureMachine",
	}
	if diff := cmp.Diff(want, told(lines(t, out))); diff != "" {
		t.Error(diff)
	}
}

// TestAnAnswerThatIsLostIsSeen loses the response to each write of a Machine. The next observation shows the
// result.
func TestAnAnswerThatIsLostIsSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(context.Context, actuate.Action, *clusterv1.Machine) error
		want []string
	}{
		"LetGo": {func(ctx context.Context, a actuate.Action, m *clusterv1.Machine) error {
			return a.RemoveHooks(ctx, m, actuate.Waits{}, v1alpha1.PreDrainHookAnnotation)
		}, []string{"Depart api_error 1 id0 pre-drain", "Depart success 1 id0 pre-drain"}},
		"Expedite": {func(ctx context.Context, a actuate.Action, m *clusterv1.Machine) error {
			return a.Expedite(ctx, &children.Set{Machine: m})
		}, []string{"Remove api_error 1 id0 expedite", "Remove success 1 id0 expedite"}},
		"Remove": {func(ctx context.Context, a actuate.Action, m *clusterv1.Machine) error {
			a.Reason = v1alpha1.KilledByPerson
			_, err := a.Remove(ctx, &children.Set{Machine: m}, children.HonourHooks)
			return err
		}, []string{"KillSwitch api_error 1 id0", "KillSwitch success 1 id0"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, out := server.Fixture(t), &bytes.Buffer{}
			m := machine(f, f.Namespace(t))
			f.Edit(m, func() { m.Annotations = map[string]string{v1alpha1.PreDrainHookAnnotation: ""} })
			f.Must(f.Client.Delete(t.Context(), m))
			f.Read(m)
			a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Recorded(interceptor.Funcs{}))
			f.Fail = func(int) (before, after error) { return nil, testenv.ErrLost }
			if err := tc.do(t.Context(), a.For(window(m)), m.DeepCopy()); !errors.Is(err, testenv.ErrLost) {
				t.Fatal(err)
			}
			a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m}, true, at)
			f.Read(m)
			a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m}, true, at)
			a.Forget(client.ObjectKeyFromObject(m), at)
			if diff := cmp.Diff(tc.want, told(lines(t, out))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestADepartureIsRecordedOnce has two writers with stale caches that show no record. The first record stays,
// and the second writer gets a conflict.
func TestADepartureIsRecordedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		second  v1alpha1.DepartureReason
		deleted bool
		want    []string
	}{
		"ByOthers": {
			"It is deleted for the Cluster.", v1alpha1.DeletedByOthers, true,
			[]string{"Depart success 1 id0 pre-drain", "Depart conflict 1 id1 pre-drain", "Depart canceled 1 id1 pre-drain"},
		},
		"ForTheSame": {
			"Two ids would be two departures.", v1alpha1.ClusterDeleted, true,
			[]string{"Depart success 1 id0 pre-drain", "Depart conflict 1 id1 pre-drain", "Depart canceled 1 id1 pre-drain"},
		},
		"NotDeletedYet": {
			"A cache may not show the deletion either.", v1alpha1.ClusterDeleted, false,
			[]string{"Depart success 1 id0 pre-drain", "Depart conflict 1 id1 pre-drain", "Depart canceled 1 id1 pre-drain"},
		},
		"Owner": {
			"Who wants it at once waits for no cache.", v1alpha1.ReclaimedByOwner, true,
			[]string{"Depart success 1 id0 pre-drain", "EmergencyRemove success 1 id1 pre-drain"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, out := server.Fixture(t), &bytes.Buffer{}
			m := machine(f, f.Namespace(t))
			f.Edit(m, func() { m.Annotations = map[string]string{v1alpha1.PreDrainHookAnnotation: ""} })
			late := m.DeepCopy()
			f.Must(f.Client.Delete(t.Context(), m))
			f.Read(m)
			if tc.deleted {
				late = m.DeepCopy()
			}
			a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Client)
			letGo := func(m *clusterv1.Machine, reason v1alpha1.DepartureReason, trigger string) error {
				i := window(m)
				i.Reason, i.Trigger = reason, trigger
				return a.For(i).RemoveHooks(t.Context(), m, actuate.Waits{}, v1alpha1.PreDrainHookAnnotation)
			}
			f.Must(letGo(m.DeepCopy(), v1alpha1.ClusterDeleted, "until then"))
			urgent := tc.second == v1alpha1.ReclaimedByOwner
			if err := letGo(late, tc.second, ""); apierrors.IsConflict(err) == urgent || urgent && err != nil {
				t.Errorf("%s\n%v", tc.reason, err)
			}
			f.Read(m)
			want := v1alpha1.ClusterDeleted
			if urgent {
				want = tc.second
			}
			if d, _ := children.DepartureOf(m, at); d.Reason != want || d.Lane != v1alpha1.ExemptLane {
				t.Errorf("%s\non record is %+v", tc.reason, d)
			}
			a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m}, true, at)
			a.Forget(client.ObjectKeyFromObject(m), at)
			if diff := cmp.Diff(tc.want, told(lines(t, out))); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAnIDThatChangesHasAnEnd has another writer record a departure between two tries of it.
func TestAnIDThatChangesHasAnEnd(t *testing.T) {
	f, out := server.Fixture(t), &bytes.Buffer{}
	m := machine(f, f.Namespace(t))
	f.Edit(m, func() { m.Annotations = map[string]string{v1alpha1.PreDrainHookAnnotation: ""} })
	f.Must(f.Client.Delete(t.Context(), m))
	f.Read(m)
	a := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, f.Recorded(interceptor.Funcs{}))
	letGo := func() error {
		return a.For(window(m)).RemoveHooks(t.Context(), m.DeepCopy(), actuate.Waits{}, v1alpha1.PreDrainHookAnnotation)
	}
	f.Fail = func(int) (before, after error) { return testenv.ErrLost, nil }
	for range 2 {
		if err := letGo(); !errors.Is(err, testenv.ErrLost) {
			t.Fatal(err)
		}
	}
	f.Fail = nil
	f.Must(actuate.New(f.Client).For(window(m)).Record(t.Context(), m))
	f.Must(letGo())
	want := []string{
		"Depart api_error 1 id0 pre-drain", "Depart api_error 2 id0 pre-drain", "Depart canceled 2 id0 pre-drain", "Depart success 1 id1 pre-drain",
	}
	if diff := cmp.Diff(want, told(lines(t, out))); diff != "" {
		t.Error(diff)
	}
}

// TestWhatIsSuppressedIsToldOnce deletes a Machine with another client while writes are suppressed. Two
// controllers report the same action, one of them without its trigger.
func TestWhatIsSuppressedIsToldOnce(t *testing.T) {
	for name, reason := range map[string]v1alpha1.DepartureReason{"ByOthers": v1alpha1.DeletedByOthers, "Owner": v1alpha1.ReclaimedByOwner, "KillSwitch": v1alpha1.KilledByPerson} {
		t.Run(name, func(t *testing.T) {
			f, out := server.Fixture(t), &bytes.Buffer{}
			m := machine(f, f.Namespace(t))
			f.Must(f.Client.Delete(t.Context(), m))
			f.Read(m)
			a := actuate.NewGated(&actuate.Gate{Paused: true, Log: audit.New(out)}, f.Client)
			for range 3 {
				for _, trigger := range []string{"", "asked"} {
					i := window(m)
					i.Reason, i.Trigger = reason, trigger
					if err := a.For(i).Permit(t.Context(), m.DeepCopy()); !actuate.IsSuppressed(err) {
						t.Fatal(err)
					}
					a.RecordObserved(client.ObjectKeyFromObject(m), []client.Object{m}, true, at)
				}
			}
			if got := told(lines(t, out)); len(got) != 1 {
				t.Errorf("told %v", got)
			}
		})
	}
}

// everyWrite calls every write method of an Actuator.
func everyWrite(f *testenv.Fixture, a *actuate.Actuator, m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine) map[string]error {
	ctx, errs := f.Context(), map[string]error{}
	changed := m.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box", UID: "1", ResourceVersion: "1"}}
	action, set := a.For(window(m)), func() *children.Set { return &children.Set{Machine: m.DeepCopy()} }
	u, err := children.Machine(sm, "", at, nil)
	f.Must(err)
	errs["Create"] = a.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "box"}})
	errs["Apply"] = a.Apply(ctx, u.DeepCopy())
	errs["Update"] = a.Update(ctx, u.DeepCopy())
	errs["Replace"] = a.Replace(ctx, changed.DeepCopy())
	errs["Check"] = a.Check(ctx, u.DeepCopy())
	errs["Patch"] = a.Patch(ctx, changed.DeepCopy(), m)
	errs["PatchLocked"] = a.PatchLocked(ctx, changed.DeepCopy(), m)
	errs["Delete"] = a.Delete(ctx, m)
	errs["PatchStatus"] = a.PatchStatus(ctx, ready(m), m)
	errs["ApplyCondition"] = a.ApplyCondition(ctx, m, children.MachineKind, metav1.Condition{Type: "Ready"})
	errs["Depart"] = action.Depart(ctx, set())
	errs["Record"] = action.Record(ctx, m.DeepCopy())
	errs["LetGo"] = action.RemoveHooks(ctx, m.DeepCopy(), actuate.Waits{Drain: true}, v1alpha1.PreDrainHookAnnotation)
	errs["Expedite"] = action.Expedite(ctx, set())
	_, errs["Remove"] = action.Remove(ctx, set(), children.BypassHooks)
	errs["Evict"] = a.For(actuate.Intent{Kind: audit.NodePatch}).Evict(ctx, node)
	return errs
}

func ready(m *clusterv1.Machine) *clusterv1.Machine {
	m = m.DeepCopy()
	m.Status.Phase = "Running"
	return m
}

// TestNothingIsSent calls every write method behind suppressing gates. No write may reach the API server.
func TestNothingIsSent(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		gate   *actuate.Gate
		want   audit.Outcome
		status bool
	}{
		"Paused": {"A pause writes nothing but what it shows.", &actuate.Gate{Paused: true}, audit.Suppressed, true},
		"DryRun": {"Another manager owns the status.", &actuate.Gate{DryRun: true}, audit.DryRun, false},
		"Both":   {"The pause wins the counting, and the dry run what is written.", &actuate.Gate{Paused: true, DryRun: true}, audit.Suppressed, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, out := server.Fixture(t), &bytes.Buffer{}
			ns := f.Namespace(t)
			m, sm := machine(f, ns), testenv.ScheduledMachine(ns, "box")
			f.Create(sm)
			tc.gate.Log = audit.New(out)
			a := actuate.NewGated(tc.gate, f.Recorded(interceptor.Funcs{}))
			for range 3 {
				for what, err := range everyWrite(f, a, m, sm) {
					if !actuate.IsSuppressed(err) || actuate.IgnoreSuppressed(err) != nil {
						t.Errorf("%s\n%s: %v", tc.reason, what, err)
					}
				}
			}
			if len(f.Writes) > 0 {
				t.Errorf("%s\nsent %v", tc.reason, f.Writes)
			}
			all := lines(t, out)
			ids := map[string]bool{}
			for _, l := range all {
				if l.Outcome != tc.want || ids[l.ActionID] || l.Attempt != 1 {
					t.Errorf("%s\n%+v", tc.reason, l)
				}
				ids[l.ActionID] = true
			}
			if len(all) != 5 { // one each of Depart, RemoveHooks, Expedite, Remove and Evict
				t.Errorf("%s\ntold of %v", tc.reason, told(all))
			}
			before := sm.DeepCopy()
			sm.Status.InSchedule = true
			if err := a.PatchStatus(t.Context(), sm, before); (err == nil) != tc.status {
				t.Errorf("%s\nstatus: %v", tc.reason, err)
			}
			before = sm.DeepCopy()
			sm.Status.Phase = v1alpha1.PhaseActive
			if err := a.PatchStatus(t.Context(), sm, before); !actuate.IsSuppressed(err) {
				t.Errorf("%s\nthe phase is written: %v", tc.reason, err)
			}
		})
	}
}

func TestIgnoreSuppressedKeepsTheRest(t *testing.T) {
	a, broken := actuate.NewGated(&actuate.Gate{Paused: true}, server.Client), errors.New("broken")
	held := a.Create(t.Context(), &corev1.ConfigMap{})
	for reason, tc := range map[string]struct{ err, want error }{
		"nothing":          {nil, nil},
		"alone":            {fmt.Errorf("creating: %w", held), nil},
		"none":             {broken, broken},
		"with another":     {errors.Join(held, broken), broken},
		"around a join":    {fmt.Errorf("all: %w", errors.Join(held, errors.Join(broken, held))), broken},
		"nothing but held": {errors.Join(held, errors.Join(held)), nil},
	} {
		if got := actuate.IgnoreSuppressed(tc.err); !errors.Is(got, tc.want) || (got == nil) != (tc.want == nil) || actuate.IsSuppressed(got) {
			t.Errorf("%s: %v", reason, got)
		}
	}
}

// TestAFullDiskStopsNothing checks that the Machine leaves although no line can be written.
func TestAFullDiskStopsNothing(t *testing.T) {
	f := server.Fixture(t)
	m := machine(f, f.Namespace(t))
	log, lost := audit.New(full{}), 0
	log.Failed = func(error) { lost++ }
	f.Must(actuate.NewGated(&actuate.Gate{Log: log}, f.Client).For(window(m)).Depart(t.Context(), &children.Set{Machine: m.DeepCopy()}))
	if f.Read(m); m.DeletionTimestamp.IsZero() || lost != 1 {
		t.Errorf("deleted at %v, %d lines lost", m.DeletionTimestamp, lost)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestTheTransportRefuses sends requests that a suppressing Actuator does not send.
func TestTheTransportRefuses(t *testing.T) {
	const sms = "/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines/box"
	merge := "application/merge-patch+json"
	cases := map[string]struct {
		method, path, kind, body string
		paused, dryRun           bool
	}{
		"Get":            {"GET", sms, "", "", true, true},
		"Watch":          {"GET", "/api/v1/nodes?watch=true", "", "", true, true},
		"Lease":          {"PUT", "/apis/coordination.k8s.io/v1/namespaces/5spot-system/leases/lead", "", "{}", true, true},
		"Event":          {"POST", "/apis/events.k8s.io/v1/namespaces/farm/events", "", "{}", true, true},
		"CoreEvent":      {"PATCH", "/api/v1/namespaces/farm/events/box", merge, "{}", true, true},
		"BehindAPrefix":  {"POST", "/k8s/clusters/c-1/api/v1/namespaces/farm/events", "", "{}", true, true},
		"TokenReview":    {"POST", "/apis/authentication.k8s.io/v1/tokenreviews", "", "{}", true, true},
		"AccessReview":   {"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", "{}", true, true},
		"Status":         {"PATCH", sms + "/status", merge, `{"status":{"inSchedule":true}}`, true, false},
		"Phase":          {"PATCH", sms + "/status", merge, `{"status":{"phase":"Active"}}`, false, false},
		"NoPhase":        {"PATCH", sms + "/status", merge, `{"status":{"phase":null}}`, false, false},
		"AllStatus":      {"PUT", sms + "/status", "", `{"status":{}}`, false, false},
		"AppliedStatus":  {"PATCH", sms + "/status", "application/apply-patch+yaml", `{"status":{}}`, false, false},
		"Spec":           {"PATCH", sms, merge, `{}`, false, false},
		"Machine":        {"DELETE", "/apis/cluster.x-k8s.io/v1beta2/namespaces/farm/machines/box", "", "", false, false},
		"MachineStatus":  {"PATCH", "/apis/cluster.x-k8s.io/v1beta2/namespaces/farm/machines/box/status", merge, `{}`, false, false},
		"Node":           {"PATCH", "/api/v1/nodes/box", merge, `{}`, false, false},
		"NodeOfThatName": {"DELETE", "/api/v1/nodes/events", "", "", false, false},
		"PodEviction":    {"POST", "/api/v1/namespaces/default/pods/box/eviction", "", "{}", false, false},
		"DryRun":         {"POST", "/api/v1/namespaces/default/configmaps?dryRun=All", "", "{}", false, false},
	}
	for name, tc := range cases {
		for _, g := range []struct {
			gate *actuate.Gate
			want bool
		}{
			{&actuate.Gate{Paused: true}, tc.paused},
			{&actuate.Gate{DryRun: true}, tc.dryRun},
			{&actuate.Gate{Paused: true, DryRun: true}, tc.dryRun},
			{&actuate.Gate{}, true},
		} {
			sent, closed := "", false
			body := &closes{strings.NewReader(tc.body), &closed}
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://lab.test"+tc.path, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", tc.kind)
			answer, err := g.gate.Transport(trip(func(r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				sent, closed = "sent "+string(b), true
			})).RoundTrip(req)
			if err == nil {
				_ = answer.Body.Close()
			}
			want := ""
			if g.want {
				want = "sent " + tc.body
			}
			if sent != want || !closed || g.want != (err == nil) || err != nil && (!errors.Is(err, actuate.ErrRefused) || !strings.Contains(err.Error(), tc.method)) {
				t.Errorf("%s, paused %t, dry run %t: %q, body closed %t, %v", name, g.gate.Paused, g.gate.DryRun, sent, closed, err)
			}
		}
	}
}

type trip func(*http.Request)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) {
	t(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

type closes struct {
	io.Reader
	closed *bool
}

func (c *closes) Close() error {
	*c.closed = true
	return nil
}

// TestTheTransportHoldsABrokenActuator has an Actuator that suppresses nothing, behind the transport of a
// manager that suppresses writes.
func TestTheTransportHoldsABrokenActuator(t *testing.T) {
	f := server.Fixture(t)
	ns := f.Namespace(t)
	m, sm := machine(f, ns), testenv.ScheduledMachine(ns, "box")
	f.Create(sm)
	for name, gate := range map[string]*actuate.Gate{"Paused": {Paused: true}, "DryRun": {DryRun: true}} {
		config := *server.Config
		config.Wrap(gate.Transport)
		c, err := client.New(&config, client.Options{Scheme: server.Client.Scheme()})
		f.Must(err)
		for what, err := range everyWrite(f, actuate.New(c), m, sm) {
			if !errors.Is(err, actuate.ErrRefused) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	now := m.DeepCopy()
	if f.Read(now); now.ResourceVersion != m.ResourceVersion || f.Read(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "box"}}) {
		t.Error("something was written")
	}
}

// connected is a cluster cache that returns the client configuration of its cluster.
type connected struct {
	clustercache.ClusterCache
	config *rest.Config
}

func (c connected) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return c.config, nil
}

// TestTheTransportGuardsWorkloadClusters has an Actuator that suppresses nothing and writes to a workload
// cluster.
func TestTheTransportGuardsWorkloadClusters(t *testing.T) {
	f, lab := server.Fixture(t), client.ObjectKey{Namespace: "farm", Name: "lab"}
	cache := connected{clustercache.NewFakeClusterCache(server.Client, lab), server.Config}
	gate := &actuate.Gate{Paused: true}
	c, err := gate.Guard(t.Context(), server.Client, cache, lab)
	f.Must(err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
	if err := actuate.New(c).Create(t.Context(), node); !errors.Is(err, actuate.ErrRefused) {
		t.Errorf("a broken Actuator: %v", err)
	}
	f.Must(c.List(t.Context(), &corev1.NodeList{}))
	remote, err := actuate.NewGated(gate, server.Client).Remote(t.Context(), cache, lab)
	f.Must(err)
	if err := remote.Create(t.Context(), node); !actuate.IsSuppressed(err) {
		t.Errorf("another: %v", err)
	}
	_, err = actuate.NewGated(gate, server.Client).Remote(t.Context(), clustercache.NewFakeEmptyClusterCache(), lab)
	if !errors.Is(err, clustercache.ErrClusterNotConnected) {
		t.Errorf("nobody is connected: %v", err)
	}
}
