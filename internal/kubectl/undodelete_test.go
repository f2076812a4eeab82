// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

const (
	created       = "/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines"
	officeMachine = "/apis/cluster.x-k8s.io/v1beta2/namespaces/farm/machines/office-machine"
)

// deletedMachine is a ScheduledMachine that is being deleted while its Machine runs.
func deletedMachine(m *v1alpha1.ScheduledMachine) {
	m.UID, m.ResourceVersion, m.DeletionTimestamp = "old", "1", in(-time.Minute)
	m.Labels = map[string]string{"team": "blue"}
	m.Annotations = map[string]string{v1alpha1.LastReclaimAnnotation: "{}"}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "prod", UID: "c"}}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "flux", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:clusterName":{}}}`)}}
	m.Status.MachineRef.UID = "m"
}

// runningMachine is the Machine of office.
func runningMachine(changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "farm", Name: "office-machine", UID: "m", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{Kind: "ScheduledMachine", Name: "office", UID: "old"}, {Kind: "Cluster", Name: "prod", UID: "c"}},
		},
	}
	m.Status.NodeRef.Name = "worker-7"
	for _, change := range changes {
		change(m)
	}
	return m
}

// undoable is an API server with office, which is being deleted, and its Machine. A manager confirms a pause.
func undoable(changes ...func(*v1alpha1.ScheduledMachine)) *api {
	return &api{
		objects: map[string]any{path("office"): machine("office", append([]func(*v1alpha1.ScheduledMachine){deletedMachine}, changes...)...), officeMachine: runningMachine()},
		manager: confirmPause,
	}
}

func confirmPause(a *api, path string) {
	object, ok := a.objects[path].(map[string]any)
	if _, on, _ := unstructured.NestedString(object, "metadata", "annotations", clusterv1.PausedAnnotation); !ok || !on {
		return
	}
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	_ = unstructured.SetNestedSlice(object, append(conditions, map[string]any{"type": clusterv1.PausedCondition, "status": "True"}), "status", "conditions")
}

// object returns an object as the API server has it, nil if there is none.
func (a *api) object(t *testing.T, path string) *v1alpha1.ScheduledMachine {
	t.Helper()
	if a.objects[path] == nil {
		return nil
	}
	m := &v1alpha1.ScheduledMachine{}
	body, err := json.Marshal(a.objects[path])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// wantUndone checks that office exists again as it was, that its Machine has no deleted owner, and that no backup is
// left.
func (a *api) wantUndone(t *testing.T, dir string) {
	t.Helper()
	got, want := a.object(t, path("office")), machine("office", deletedMachine)
	if got == nil {
		t.Fatal("office does not exist")
	}
	type kept struct {
		Labels, Annotations map[string]string
		Owners              []metav1.OwnerReference
		Spec                v1alpha1.ScheduledMachineSpec
	}
	of := func(m *v1alpha1.ScheduledMachine) kept {
		return kept{m.Labels, m.Annotations, m.OwnerReferences, m.Spec}
	}
	if diff := cmp.Diff(of(want), of(got)); diff != "" {
		t.Errorf("office: -want, +got:\n%s", diff)
	}
	if got.UID != "" || !got.DeletionTimestamp.IsZero() {
		t.Errorf("office is not a new object: %+v", got.ObjectMeta)
	}
	if owners := a.object(t, officeMachine).OwnerReferences; len(owners) != 1 || owners[0].Kind != "Cluster" {
		t.Errorf("owners of the Machine: %+v", owners)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("files that are left: %v", left)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestUndoDelete(t *testing.T) {
	t.Parallel()
	const pauses = "kubectl-5spot: map[metadata:map[annotations:map[cluster.x-k8s.io/paused:"
	a, dir := undoable(), t.TempDir()
	got := run("", "undo-delete", "office", "--backup-dir", dir, a.serve(t))
	want := result{Out: "office: saved in " + dir + "/undo-delete.farm.office.yaml until this is done. After an interruption, run the same command again.\n" +
		"office: its deletion is undone. Its Machine office-machine is kept, and was not drained.\n" +
		"But its spec comes from flux by server-side apply, which may delete it again: correct its source.\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	a.wantUndone(t, dir)
	written := []string{
		pauses + "kubectl-5spot undo-delete]]]",
		"kubectl-5spot: map[metadata:map[ownerReferences:[map[apiVersion: kind:Cluster name:prod uid:c]]]]",
		"kubectl-5spot: map[metadata:map[finalizers:<nil>]]",
		"kubectl-5spot: create office",
		"kubectl-5spot: map[metadata:map[managedFields:[map[fieldsV1:map[f:spec:map[f:clusterName:map[]]] manager:flux operation:Apply]]]]",
	}
	if diff := cmp.Diff(written, a.patches); diff != "" {
		t.Errorf("written: -want, +got:\n%s", diff)
	}
	again := run("", "undo-delete", "office", "--backup-dir", dir, a.serve(t))
	if diff := cmp.Diff(said("office: it is not being deleted.\n"), again); diff != "" {
		t.Errorf("again: -want, +got:\n%s", diff)
	}
}

// TestUndoDeleteWhileAControllerWrites has a controller write to the Machine between the read and the first check.
func TestUndoDeleteWhileAControllerWrites(t *testing.T) {
	t.Parallel()
	a, dir := undoable(), t.TempDir()
	a.beforePatch = func(a *api) { a.touch(t, officeMachine) }
	if got := run("", "undo-delete", "office", "--backup-dir", dir, a.serve(t)); got.Code != 0 {
		t.Errorf("%+v", got)
	}
	a.wantUndone(t, dir)
}

// TestUndoDeleteContinuesAfterEachStep interrupts the command at each write, which is refused or whose response is
// lost. The same command must then finish.
func TestUndoDeleteContinuesAfterEachStep(t *testing.T) {
	t.Parallel()
	for step := range 5 {
		for _, kind := range []fault{refused, lost} {
			for _, args := range [][]string{{"office"}, {"--cluster", "prod"}} {
				t.Run(fmt.Sprint(step, kind, args[0]), func(t *testing.T) {
					t.Parallel()
					a, dir := undoable(), t.TempDir()
					writes := 0
					a.fault = func() fault {
						if writes++; writes > step {
							return kind
						}
						return none
					}
					a.objects[created] = v1alpha1.ScheduledMachineList{}
					command := append([]string{"undo-delete", "--backup-dir", dir, a.serve(t)}, args...)
					list := func() {
						var items []v1alpha1.ScheduledMachine
						if m := a.object(t, path("office")); m != nil {
							items = append(items, *m)
						}
						a.objects[created] = v1alpha1.ScheduledMachineList{
							TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachineList"}, Items: items,
						}
					}
					list()
					first := run("", command...)
					if (step > 0 || kind == lost) && a.object(t, officeMachine) == nil {
						t.Fatalf("the Machine is gone: %+v", first)
					}
					a.fault = nil
					list()
					if again := run("", command...); again.Code != 0 {
						t.Errorf("first: %+v\nagain: %+v", first, again)
					}
					a.wantUndone(t, dir)
				})
			}
		}
	}
}

func TestUndoDeleteRefuses(t *testing.T) {
	t.Parallel()
	forbidden := refusal(http.StatusForbidden, metav1.StatusReasonForbidden, `User "ada" cannot create resource "scheduledmachines"`)
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.ScheduledMachine)
		edit   func(*api)
		want   string
	}{
		"MachineDeleted": {
			"A Machine that is being deleted is deleted.", nil,
			func(a *api) {
				a.objects[officeMachine] = runningMachine(func(m *clusterv1.Machine) { m.DeletionTimestamp = in(-time.Minute) })
			},
			"its Machine office-machine is being deleted (since 2025-01-15T16:59:00Z), which cannot be undone: the machine leaves, and joins again by its schedule when the ScheduledMachine exists again",
		},
		"MachineGone": {"", nil, func(a *api) { delete(a.objects, officeMachine) }, "its Machine office-machine is gone"},
		"NoMachine":   {"", away, nil, "it has no Machine that could be kept"},
		"NotJoined": {
			"The garbage collector could delete its infrastructure.", nil,
			func(a *api) {
				a.objects[officeMachine] = runningMachine(func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" })
			},
			"its Machine office-machine has not joined the cluster, so there is nothing to keep",
		},
		"Owner": {
			"An owner's request comes first.", withRequest(java), nil,
			"it is being given back to its owner (its owner started a program that matches java), so the machine leaves",
		},
		"KillSwitch": {"", func(m *v1alpha1.ScheduledMachine) { m.Spec.KillSwitch = true }, nil, "spec.killSwitch is true, so the machine leaves"},
		"SharedHost": {
			"The other would join on the host at the moment in which this one is absent.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.HostClaimedCondition, metav1.ConditionTrue, v1alpha1.ClaimedFirstReason, "The host is also named by ScheduledMachine desk"))
			}, nil,
			"another ScheduledMachine could take its host meanwhile. The host is also named by ScheduledMachine desk",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := undoable(), t.TempDir()
			if tc.change != nil {
				a = undoable(tc.change)
			}
			if tc.edit != nil {
				tc.edit(a)
			}
			config, file := a.serve(t), filepath.Join(dir, "undo-delete.farm.office.yaml")
			want := result{Err: "error: office: " + tc.want + ". It is saved in " + file + ": when the ScheduledMachine is gone, run the same command again, which creates it from the file\n", Code: 1}
			if diff := cmp.Diff(want, run("", "undo-delete", "office", "--backup-dir", dir, config)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if len(a.patches) != 0 {
				t.Errorf("written: %q", a.patches)
			}
			want = result{Err: "error: office: " + tc.want + ". Nothing was changed\n", Code: 1}
			if diff := cmp.Diff(want, run("", "undo-delete", "office", "--dry-run", "--backup-dir", t.TempDir(), config)); diff != "" {
				t.Errorf("--dry-run: -want, +got:\n%s", diff)
			}
			delete(a.objects, path("office"))
			if diff := cmp.Diff(said("office: created again from the backup. If its Machine still runs, it is kept.\n"), run("", "undo-delete", "office", "--backup-dir", dir, config)); diff != "" {
				t.Errorf("when it is gone: -want, +got:\n%s", diff)
			}
		})
	}
	t.Run("NoRight", func(t *testing.T) {
		t.Parallel()
		a, dir := undoable(), t.TempDir()
		a.objects["POST "+created] = forbidden
		got := run("", "undo-delete", "office", "--backup-dir", dir, a.serve(t))
		if got.Code != 1 || !strings.Contains(got.Err, `creating it again would fail: User "ada" cannot create resource "scheduledmachines"`) || len(a.patches)+len(files(t, dir)) != 0 {
			t.Errorf("a missing permission must be named before anything changes: %+v, written %q", got, a.patches)
		}
	})
}

// TestUndoDeleteEndsItsPause has an event between the pause and the removal.
func TestUndoDeleteEndsItsPause(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]func(*api){
		"MachineDeleted": func(a *api) {
			a.objects[officeMachine] = runningMachine(func(m *clusterv1.Machine) { m.DeletionTimestamp = in(0) })
		},
		"OwnerRequests": func(a *api) {
			object := a.objects[path("office")].(map[string]any)
			_ = unstructured.SetNestedField(object, java.String(), "metadata", "annotations", v1alpha1.EmergencyReclaimAnnotation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := undoable()
			a.manager = func(a *api, p string) {
				if confirmPause(a, p); len(a.patches) == 1 {
					event(a)
				}
			}
			got := run("", "undo-delete", "office", "--backup-dir", t.TempDir(), a.serve(t))
			if got.Code != 1 || len(a.patches) != 2 {
				t.Errorf("the undo must end: %+v, written %q", got, a.patches)
			}
			m := a.object(t, path("office"))
			if _, on := m.Annotations[clusterv1.PausedAnnotation]; on || len(m.Finalizers) != 1 {
				t.Errorf("its departure must go on: %+v", m.ObjectMeta)
			}
		})
	}
}

func TestUndoDeleteEndsThePauseOfAnInterruptedOne(t *testing.T) {
	t.Parallel()
	a := undoable(withRequest(java), func(m *v1alpha1.ScheduledMachine) {
		m.Annotations[clusterv1.PausedAnnotation] = "kubectl-5spot undo-delete"
	})
	got := run("", "undo-delete", "office", "--backup-dir", t.TempDir(), a.serve(t))
	if m := a.object(t, path("office")); got.Code != 1 || len(m.Annotations) != 1 || !m.BeingReclaimed() {
		t.Errorf("the owner must not wait for an undo that cannot go on: %+v, %v", got, m.Annotations)
	}
}

func TestUndoDeleteWaitsForTheManager(t *testing.T) {
	t.Parallel()
	a := undoable()
	a.manager = nil
	got := run("", "undo-delete", "office", "--timeout", "1s", "--backup-dir", t.TempDir(), a.serve(t))
	if got.Code != 1 || !strings.Contains(got.Err, "no manager confirmed its pause within 1s: does one serve it? Nothing was removed, and it stays paused") || len(a.patches) != 1 {
		t.Errorf("without a manager nothing is removed: %+v, written %q", got, a.patches)
	}
}

func TestUndoDeleteKeepsThePauseOfAPerson(t *testing.T) {
	t.Parallel()
	a, dir := undoable(func(m *v1alpha1.ScheduledMachine) {
		m.Annotations[clusterv1.PausedAnnotation] = ""
		m.Status.Conditions = append(m.Status.Conditions, condition(clusterv1.PausedCondition, metav1.ConditionTrue, "Paused", ""))
	}), t.TempDir()
	got := run("", "undo-delete", "office", "--backup-dir", dir, a.serve(t))
	if m := a.object(t, path("office")); got.Code != 0 || m.Annotations[clusterv1.PausedAnnotation] != "" || len(m.Annotations) != 2 {
		t.Errorf("%+v: %+v", got, m.Annotations)
	}
}

// TestUndoDeleteAfterAnotherCreatedIt has a GitOps tool that creates the object while it is absent.
func TestUndoDeleteAfterAnotherCreatedIt(t *testing.T) {
	t.Parallel()
	a, dir := undoable(func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Enabled = new(false) }), t.TempDir()
	a.fault = func() fault {
		if a.objects[path("office")] == nil {
			a.objects[path("office")] = machine("office")
		}
		return none
	}
	got := run("", "undo-delete", "office", "--backup-dir", dir, a.serve(t))
	m := a.object(t, path("office"))
	if got.Code != 0 || m.ScheduleEnabled() || m.Annotations[v1alpha1.LastReclaimAnnotation] == "" || len(files(t, dir)) != 0 {
		t.Errorf("what Git does not have must be restored: %+v: %+v", got, m)
	}
}

func TestUndoDeleteOfACluster(t *testing.T) {
	t.Parallel()
	a, dir := undoable(), t.TempDir()
	other := machine("other", deletedMachine, func(m *v1alpha1.ScheduledMachine) { m.Spec.ClusterName = "lab" })
	a.objects[created] = v1alpha1.ScheduledMachineList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachineList"},
		Items:    []v1alpha1.ScheduledMachine{*machine("office", deletedMachine), *machine("stays"), *other},
	}
	config := a.serve(t)
	dry := run("", "undo-delete", "--cluster", "prod", "--dry-run", "--backup-dir", dir, config)
	if diff := cmp.Diff(said("office: its deletion can be undone: its Machine office-machine still runs.\n"), dry); diff != "" || len(a.patches) != 0 || len(files(t, dir)) != 0 {
		t.Errorf("--dry-run must change nothing: %s, %q", diff, a.patches)
	}
	if got := run("", "undo-delete", "--cluster", "prod", "--backup-dir", dir, config); got.Code != 0 || strings.Count(got.Out, "is undone") != 1 {
		t.Errorf("%+v", got)
	}
	a.wantUndone(t, dir)
	if diff := cmp.Diff(result{Err: "No ScheduledMachine of Cluster mars in namespace farm is being deleted.\n"}, run("", "undo-delete", "--cluster", "mars", "--backup-dir", dir, config)); diff != "" {
		t.Errorf("none: -want, +got:\n%s", diff)
	}
	const wrong = "error: give the names of ScheduledMachines, or --cluster for all of a Cluster that are being deleted, not both\n"
	for _, args := range [][]string{{}, {"office", "--cluster", "prod"}} {
		if diff := cmp.Diff(result{Err: wrong, Code: 2}, run("", append([]string{"undo-delete"}, args...)...)); diff != "" {
			t.Errorf("%v: -want, +got:\n%s", args, diff)
		}
	}
	gone := run("", "undo-delete", "ghost", "--backup-dir", dir, config)
	if gone.Code != 1 || !strings.Contains(gone.Err, "in namespace farm, and there is no backup") {
		t.Errorf("%+v", gone)
	}
	if names := slices.Sorted(maps.Keys(a.objects)); !slices.Contains(names, path("office")) {
		t.Error(names)
	}
}

func TestWhyNamesUndoDelete(t *testing.T) {
	t.Parallel()
	m := machine("office", kept(v1alpha1.DeparturesHeldReason, time.Minute), deletedMachine)
	got := run("", "why", "office", cluster(t, map[string]any{path("office"): m}))
	if !strings.Contains(got.Out, "if the deletion was a mistake: kubectl 5spot -n farm undo-delete office\n") {
		t.Errorf("%+v", got)
	}
}
