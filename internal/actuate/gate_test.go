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

// textOf returns lines in a comparable form. It numbers ids by their first occurrence.
func textOf(all []audit.Line) []string {
	var ids, says []string
	for _, l := range all {
		id, step, _ := strings.Cut(l.ActionID, "/")
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		says = append(says, strings.TrimSpace(fmt.Sprint(l.Kind, " ", l.Outcome, " id", slices.Index(ids, id), " ", step)))
	}
	return says
}

func window(m *clusterv1.Machine) actuate.Intent {
	return actuate.Intent{
		Reason: v1alpha1.WindowClosed, At: at, Machine: client.ObjectKeyFromObject(m),
		Cluster: client.ObjectKey{Namespace: m.Namespace, Name: "lab"}, Grace: 5 * time.Minute,
	}
}

// TestEveryWriteHasALine has an API server that rejects the deletion of a Machine twice.
func TestEveryWriteHasALine(t *testing.T) {
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
	want := []string{"Depart success id0", "Depart api_error id0", "Depart api_error id0", "Depart success id0"} // The first is the record.
	if diff := cmp.Diff(want, textOf(all)); diff != "" {
		t.Error(diff)
	}
	d, _ := children.DepartureOf(m, at)
	last := audit.Line{
		Time: at, Kind: audit.Depart, Machine: m.Namespace + "/box", Cluster: m.Namespace + "/lab", Reason: "WindowClosed", GraceSeconds: 300,
		Outcome: audit.Success, ActionID: d.ActionID, Lane: "scheduled", UID: string(m.UID),
	}
	if diff := cmp.Diff(last, all[len(all)-1]); diff != "" {
		t.Errorf("the id is that of the record on the Machine:\n%s", diff)
	}
	reopened := window(m)
	reopened.Reason = v1alpha1.MachineReplaced // The window opens again during the departure.
	f.Must(a.For(reopened).RemoveHooks(t.Context(), m.DeepCopy(), actuate.Waits{Drain: true}))
	all = lines(t, out)
	if l := all[len(all)-1]; l.Reason != "WindowClosed" || l.Lane != "scheduled" || l.ActionID != d.ActionID {
		t.Errorf("the departure has another reason than its record: %+v", l)
	}
}

// TestTheLinesOfARemoval requests a Machine for its owner that another client deletes. The API server rejects all
// writes at first.
func TestTheLinesOfARemoval(t *testing.T) {
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
	owner.Reason = v1alpha1.ReclaimedByOwner
	for i, failure := range []error{testenv.ErrLost, context.Canceled, nil} {
		f.Fail = func(int) (before, after error) { return failure, nil }
		f.Read(m)
		f.Read(infra)
		_, err := a.For(owner).Remove(t.Context(), &children.Set{Machine: m.DeepCopy(), Infrastructure: infra.DeepCopy()}, children.BypassHooks)
		if (err == nil) != (i == 2) {
			t.Fatal(err)
		}
	}
	want := []string{
		"EmergencyRemove api_error id0", "EmergencyRemove api_error id0 GenericInfrastructureMachine",
		"EmergencyRemove canceled id1", "EmergencyRemove canceled id1 GenericInfrastructureMachine",
		"EmergencyRemove success id2", "EmergencyRemove success id2 GenericInfrastructureMachine",
	}
	if diff := cmp.Diff(want, textOf(lines(t, out))); diff != "" {
		t.Error(diff)
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
			[]string{"Depart success id0 pre-drain", "Depart conflict id1 pre-drain"},
		},
		"ForTheSame": {
			"Two ids would be two departures.", v1alpha1.ClusterDeleted, true,
			[]string{"Depart success id0 pre-drain", "Depart conflict id1 pre-drain"},
		},
		"NotDeletedYet": {
			"A cache may not show the deletion either.", v1alpha1.ClusterDeleted, false,
			[]string{"Depart success id0 pre-drain", "Depart conflict id1 pre-drain"},
		},
		"Owner": {
			"Who wants it at once waits for no cache.", v1alpha1.ReclaimedByOwner, true,
			[]string{"Depart success id0 pre-drain", "EmergencyRemove success id1 pre-drain"},
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
			letGo := func(m *clusterv1.Machine, reason v1alpha1.DepartureReason) error {
				i := window(m)
				i.Reason = reason
				return a.For(i).RemoveHooks(t.Context(), m, actuate.Waits{}, v1alpha1.PreDrainHookAnnotation)
			}
			f.Must(letGo(m.DeepCopy(), v1alpha1.ClusterDeleted))
			urgent := tc.second == v1alpha1.ReclaimedByOwner
			if err := letGo(late, tc.second); apierrors.IsConflict(err) == urgent || urgent && err != nil {
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
			if diff := cmp.Diff(tc.want, textOf(lines(t, out))); diff != "" {
				t.Errorf("%s\n%s", tc.reason, diff)
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
	errs["ApplyForced"] = a.Apply(ctx, u.DeepCopy(), client.ForceOwnership)
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

// gated returns a client whose requests pass a gate, as in a manager.
func gated(f *testenv.Fixture, gate *actuate.Gate) client.Client {
	f.Helper()
	config := *server.Config
	config.Wrap(gate.Transport)
	c, err := client.New(&config, client.Options{Scheme: server.Client.Scheme()})
	f.Must(err)
	return c
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
			a := actuate.NewGated(tc.gate, gated(f, tc.gate))
			for range 3 {
				for what, err := range everyWrite(f, a, m, sm) {
					if !actuate.IsSuppressed(err) || actuate.IgnoreSuppressed(err) != nil {
						t.Errorf("%s\n%s: %v", tc.reason, what, err)
					}
				}
			}
			now := m.DeepCopy()
			if f.Read(now); now.ResourceVersion != m.ResourceVersion || f.Read(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "box"}}) {
				t.Errorf("%s\nsomething was written", tc.reason)
			}
			all := lines(t, out)
			for _, l := range all {
				if l.Outcome != tc.want {
					t.Errorf("%s\n%+v", tc.reason, l)
				}
			}
			if len(all) != 3*7 { // two of Remove, and one each of Depart, Record, RemoveHooks, Expedite and Evict
				t.Errorf("%s\nlines %v", tc.reason, textOf(all))
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
	gate, broken := &actuate.Gate{Paused: true}, errors.New("broken")
	held := actuate.NewGated(gate, testenv.Gated(gate.Transport, server.Client)).Create(t.Context(), &corev1.ConfigMap{})
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
	if f.Read(m); m.DeletionTimestamp.IsZero() || lost != 2 { // the record and the deletion
		t.Errorf("deleted at %v, %d lines lost", m.DeletionTimestamp, lost)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestTheTransportSuppressesWrites sends requests that a suppressing Actuator does not send.
func TestTheTransportSuppressesWrites(t *testing.T) {
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
			if sent != want || !closed || g.want != (err == nil) || err != nil && !actuate.IsSuppressed(err) {
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

// connected is a cluster cache with one connection.
type connected struct {
	clustercache.ClusterCache
	config *rest.Config
}

func (c connected) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return c.config, nil
}

// TestTheTransportGuardsWorkloadClusters writes to a workload cluster, whose client has no transport of ours.
func TestTheTransportGuardsWorkloadClusters(t *testing.T) {
	f, lab := server.Fixture(t), client.ObjectKey{Namespace: "farm", Name: "lab"}
	a := actuate.NewGated(&actuate.Gate{Paused: true}, server.Client)
	remote, err := a.Remote(t.Context(), connected{clustercache.NewFakeClusterCache(server.Client, lab), server.Config}, lab)
	f.Must(err)
	if err := remote.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}); !actuate.IsSuppressed(err) {
		t.Errorf("got %v", err)
	}
	_, err = a.Remote(t.Context(), clustercache.NewFakeEmptyClusterCache(), lab)
	if !errors.Is(err, clustercache.ErrClusterNotConnected) {
		t.Errorf("the cluster is not connected: %v", err)
	}
}
