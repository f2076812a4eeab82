// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// TestAWriteNamesItsObject replaces the object by another of the same name between a read and each kind of
// write.
func TestAWriteNamesItsObject(t *testing.T) {
	a, ctx := actuate.New(server.Client), t.Context()
	writes := map[string]func(obj *corev1.ConfigMap, before client.Object) error{
		"Patch": func(obj *corev1.ConfigMap, before client.Object) error {
			obj.Data = map[string]string{"written": "yes"}
			return a.Patch(ctx, obj, before)
		},
		"PatchLocked": func(obj *corev1.ConfigMap, before client.Object) error {
			obj.Data = map[string]string{"written": "yes"}
			return a.PatchLocked(ctx, obj, before)
		},
		"Delete": func(obj *corev1.ConfigMap, _ client.Object) error { return a.Delete(ctx, obj) },
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			f := server.Fixture(t)
			made := func() *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.ToLower(name)}}
			}
			read := made()
			f.Create(read)
			f.Must(f.Client.Delete(t.Context(), made()))
			other := made()
			f.Create(other)
			t.Cleanup(func() { _ = f.Client.Delete(f.Context(), other) })

			err := write(read, read.DeepCopy())
			if !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a conflict", err)
			}
			if !f.Read(other) || len(other.Data) != 0 {
				t.Errorf("another object of that name was written to: %v", other.Data)
			}
			f.Must(f.Client.Delete(t.Context(), other))
			read.Data = nil
			if err := write(read, read.DeepCopy()); name == "Delete" && err != nil || name != "Delete" && !apierrors.IsNotFound(err) {
				t.Errorf("with no object of that name: %v", err)
			}
		})
	}
}

// TestTheRecordIsWrittenBeforeAnyDeletion reads the Machine at each write of a departure.
func TestTheRecordIsWrittenBeforeAnyDeletion(t *testing.T) {
	at := time.Date(2026, time.March, 2, 17, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason v1alpha1.DepartureReason
		lane   v1alpha1.DepartureLane
		leave  func(context.Context, actuate.Action, *children.Set) error
	}{
		"Depart": {v1alpha1.WindowClosed, v1alpha1.ScheduledLane, func(ctx context.Context, a actuate.Action, c *children.Set) error {
			return a.Depart(ctx, c)
		}},
		"Remove": {v1alpha1.KilledByPerson, v1alpha1.ExemptLane, func(ctx context.Context, a actuate.Action, c *children.Set) error {
			_, err := a.Remove(ctx, c, children.HonourHooks)
			return err
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := server.Fixture(t)
			machine := machine(f, f.Namespace(t))
			action := actuate.New(f.Client).For(actuate.Intent{Reason: tc.reason, At: at})
			f.Must(tc.leave(t.Context(), action, &children.Set{Machine: machine.DeepCopy()}))
			f.Read(machine)
			if machine.DeletionTimestamp.IsZero() {
				t.Error("the Machine is not deleted")
			}
			d, ok := children.DepartureOf(machine, at)
			if !ok || d.Lane != tc.lane || d.Reason != tc.reason || !d.Since.Time.Equal(at) || d.ActionID == "" || d.MachineUID != machine.UID {
				t.Errorf("on record is %q", machine.Annotations[v1alpha1.DepartureAnnotation])
			}
			for _, manager := range machine.ManagedFields {
				if manager.Manager == v1alpha1.FieldManager && manager.Time.After(machine.DeletionTimestamp.Time) {
					t.Error("it was written after the deletion")
				}
			}
		})
	}
}

// machine creates a Machine with Cluster API's finalizer.
func machine(f *testenv.Fixture, namespace string) *clusterv1.Machine {
	f.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "box", Finalizers: []string{clusterv1.MachineFinalizer}}}
	m.Spec.ClusterName = "lab"
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "example.org", Kind: "BoxMachine", Name: "box"}
	m.Spec.Bootstrap.DataSecretName = new("box")
	f.Create(m)
	return m
}

// TestAListOfOthersIsKept has another client write between a read and a write of a list. A patch replaces the
// whole list: without a lock, the other client's taint or condition would be lost.
func TestAListOfOthersIsKept(t *testing.T) {
	a := actuate.New(server.Client).For(actuate.Intent{})
	t.Run("Taints", func(t *testing.T) {
		f := server.Fixture(t)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "box-"}}
		f.Create(node)
		t.Cleanup(func() { _ = f.Client.Delete(context.WithoutCancel(t.Context()), node) })
		read := node.DeepCopy()
		theirs := corev1.Taint{Key: "example.com/dedicated", Effect: corev1.TaintEffectNoSchedule}
		f.Edit(node, func() { node.Spec.Taints = append(node.Spec.Taints, theirs) })
		if err := a.Evict(t.Context(), read); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
		f.Read(node)
		f.Must(a.Evict(t.Context(), node))
		f.Read(node)
		if !actuate.Evicting(node) || !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&theirs) }) {
			t.Errorf("taints are %v", node.Spec.Taints)
		}
	})
	t.Run("Conditions", func(t *testing.T) {
		f := server.Fixture(t)
		m := machine(f, f.Namespace(t))
		condition := func(kind string) metav1.Condition {
			return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Tested", LastTransitionTime: metav1.Now()}
		}
		read := m.DeepCopy()
		m.Status.Conditions = []metav1.Condition{condition("Theirs")}
		f.Must(f.Client.Status().Update(t.Context(), m))
		before := read.DeepCopy()
		read.Status.Conditions = []metav1.Condition{condition("Ours")}
		if err := a.PatchStatus(t.Context(), read, before); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
		if f.Read(m); len(m.Status.Conditions) != 1 || m.Status.Conditions[0].Type != "Theirs" {
			t.Errorf("conditions are %v", m.Status.Conditions)
		}
	})
}

// TestTheInfrastructureStaysWithItsMachine has an API server that rejects the deletion of the Machine.
// Providers clean up a host when the Machine is deleted.
func TestTheInfrastructureStaysWithItsMachine(t *testing.T) {
	f := server.Fixture(t)
	m := machine(f, f.Namespace(t))
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(builder.InfrastructureGroupVersion.WithKind(builder.GenericInfrastructureMachineKind))
	infra.SetNamespace(m.Namespace)
	infra.SetName("box")
	infra.SetFinalizers([]string{"test/provider"})
	f.Create(infra)
	set := func() *children.Set {
		f.Read(m)
		f.Read(infra)
		return &children.Set{Machine: m.DeepCopy(), Infrastructure: infra.DeepCopy()}
	}
	action := actuate.New(f.Recorded(interceptor.Funcs{})).For(actuate.Intent{Reason: v1alpha1.KilledByPerson, At: time.Now()})
	refused := errors.New("not today")
	f.Fail = func(n int) (before, after error) {
		if f.Writes[n] == "delete Machine" {
			return refused, nil
		}
		return nil, nil
	}
	gone, err := action.Remove(t.Context(), set(), children.HonourHooks)
	if gone || !errors.Is(err, refused) {
		t.Errorf("gone %t, error %v", gone, err)
	}
	if f.Read(infra); !infra.GetDeletionTimestamp().IsZero() {
		t.Error("the box goes, and its Machine stays")
	}
	f.Fail = nil
	if gone, err := action.Remove(t.Context(), set(), children.HonourHooks); !gone || err != nil {
		t.Errorf("gone %t, error %v", gone, err)
	}
	if f.Read(infra); infra.GetDeletionTimestamp().IsZero() {
		t.Error("the Machine goes, and its box stays")
	}
}
