// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// TestAWriteNamesItsObject has somebody delete the object, and make another of its name,
// between a read and each kind of write.
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

// TestWhyIsWrittenBeforeAnythingIsTaken looks at the Machine at each write of a departure.
func TestWhyIsWrittenBeforeAnythingIsTaken(t *testing.T) {
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
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
				Namespace: f.Namespace(t), Name: "box", Finalizers: []string{clusterv1.MachineFinalizer},
			}}
			machine.Spec.ClusterName = "lab"
			machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "example.org", Kind: "BoxMachine", Name: "box"}
			machine.Spec.Bootstrap.DataSecretName = new("box")
			f.Create(machine)
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
