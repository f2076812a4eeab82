// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// reclaimedClaims returns a world whose ScheduledMachine was deleted while the owner had the host.
func reclaimedClaims(t *testing.T, host string) *world {
	t.Helper()
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		on(host)(sm)
		sm.Spec.Schedule.Enabled = new(false)
		sm.Annotations = map[string]string{v1alpha1.ReclaimedAnnotation: java.String()}
	})
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	w.Must(w.Client.Delete(w.Context(), w.sm))
	w.settle()
	if !w.left() {
		t.Fatal("nothing is remembered")
	}
	return w
}

// TestAReclaimSurvivesARename deletes a ScheduledMachine while the owner has the host, and creates one of another
// name for it. A tool that renames a file does this.
func TestAReclaimSurvivesARename(t *testing.T) {
	const node = `{"nodeName":"box-node"}`
	other := server.Namespace(t)
	for name, tc := range map[string]struct {
		reason, was, is string
		namespace       string
		withheld        bool
	}{
		"Address":          {"It is the same host.", desk, desk, "", true},
		"NodeName":         {"Its Node asked.", desk, node, "", true},
		"AnotherHost":      {"No owner has that one.", desk, `{"address":"192.0.2.43"}`, "", false},
		"AnotherNamespace": {"Owners of other namespaces have no say here.", desk, desk, other, false},
		"NoHost":           {"What names no host is no host.", `{}`, `{}`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := reclaimedClaims(t, tc.was)
			namespace := tc.namespace
			if namespace == "" {
				namespace = w.cluster.Namespace
			} else {
				w.Must(client.IgnoreAlreadyExists(w.Client.Create(w.Context(), testenv.Cluster(namespace))))
			}
			b := w.beside(namespace, "renamed", func(sm *v1alpha1.ScheduledMachine) {
				on(tc.is)(sm)
				sm.Spec.Schedule.Enabled = nil
			})
			b.settle()
			if _, made := b.machine(); made == tc.withheld {
				t.Fatalf("%s\na Machine is made: %t, %+v", tc.reason, made, b.sm.Status)
			}
			if !tc.withheld {
				return
			}
			b.claimed(v1alpha1.HostReclaimedReason, "box", "kubectl 5spot resume box")
			left := &v1alpha1.ReclaimedMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "box"}}
			b.Read(left)
			if got, want := b.r.OfReclaimed(t.Context(), left), []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(left)}, {NamespacedName: client.ObjectKeyFromObject(b.sm)}}; !slices.Equal(got, want) {
				t.Errorf("its end wakes %v, want %v", got, want)
			}
			b.Must(b.Client.Delete(b.Context(), left))
			b.settle()
			if _, made := b.machine(); !made {
				t.Errorf("it was lent again: %+v", b.sm.Status)
			}
		})
	}
}

// TestAMachineThatReceivedTheRequestMayBeLentAgain uses two ScheduledMachines of one host. Both receive the owner's
// request, and a person lends one again. The later deletion of the other must not withhold it again.
func TestAMachineThatReceivedTheRequestMayBeLentAgain(t *testing.T) {
	off := func(host string) func(*v1alpha1.ScheduledMachine) {
		return func(sm *v1alpha1.ScheduledMachine) {
			on(host)(sm)
			sm.Spec.Schedule.Enabled = new(false)
		}
	}
	w := newWorld(t, off(`{"address":"192.0.2.43"}`))
	other := w.beside(w.cluster.Namespace, "other", off(`{"address":"192.0.2.44"}`))
	w.clock.SetTime(monday.Add(time.Hour))
	for _, o := range []*world{w, other} { // The manager records the time of an edit, a year before the deletions.
		o.settle()
		o.edit(off(desk))
		o.settle()
	}
	w.edit(func(sm *v1alpha1.ScheduledMachine) {
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.ReclaimedAnnotation, java.String())
	})
	other.settle()
	other.claimed(v1alpha1.HostReclaimedReason, "box")
	w.Must(w.Client.Delete(w.Context(), w.sm))
	w.settle()
	if !w.left() {
		t.Fatal("nothing is remembered")
	}
	other.edit(func(sm *v1alpha1.ScheduledMachine) {
		delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation) // Another controller has served it.
		sm.Spec.Schedule.Enabled = nil
	})
	other.settle()
	if _, made := other.machine(); !made {
		t.Errorf("it received the request, and was lent again by a person, and is withheld: %+v", other.sm.Status)
	}
}

// TestARenameIsReadLive creates the renamed object before the cache shows the ReclaimedMachine.
func TestARenameIsReadLive(t *testing.T) {
	w := reclaimedClaims(t, desk)
	b := w.beside(w.cluster.Namespace, "renamed", on(desk))
	b.r.Reader = notYet{b.r.Reader}
	for b.sm.Status.ObservedGeneration == 0 { // The first complete reconcile sets it.
		b.reconcile()
	}
	b.claimed(v1alpha1.HostReclaimedReason, "box")
}

// notYet is a cache that shows no ReclaimedMachines yet.
type notYet struct{ client.Reader }

func (c notYet) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.ReclaimedMachineList); ok {
		return nil
	}
	return c.Reader.List(ctx, list, opts...)
}
