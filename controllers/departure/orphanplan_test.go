// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// orphan adds a Machine that another client deletes and whose ScheduledMachine is gone.
func (w *world) orphan(i int) {
	w.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: lab.Namespace, Name: fmt.Sprintf("gone-%d-machine", i), UID: uid("orphan", i), Finalizers: []string{finalizer},
		Annotations: map[string]string{v1alpha1.PreDrainHookAnnotation: ""}, OwnerReferences: ownedBy(fmt.Sprintf("gone-%d", i), "gone"),
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = lab.Name, "box"
	w.must(w.Create(w.Context(), m))
	w.must(w.Delete(w.Context(), m))
}

// TestMachinesWithoutScheduledMachinesAreNoWayPastTheRails deletes all Machines of a Cluster before the manager starts.
func TestMachinesWithoutScheduledMachinesAreNoWayPastTheRails(t *testing.T) {
	w := newWorld(t, 0)
	for i := range 40 {
		w.orphan(i)
	}
	w.guarded = true
	w.start()
	w.plan()
	w.after(lease)
	starting := func() (n int) {
		for _, m := range w.list() {
			if _, admitted := children.DepartureOf(&m, w.clock.Now()); admitted {
				n++
			}
		}
		return n
	}
	for look := range 2 {
		w.plan()
		if n := starting(); n != 0 {
			t.Fatalf("%d start after %d looks", n, look+1)
		}
		for _, m := range w.list() {
			if _, d := children.StateOf(&m, w.clock.Now()); d.Waiting == nil || d.Waiting.Reason != v1alpha1.WipeQuarantineReason || d.Reason != v1alpha1.DeletedByOthers {
				t.Fatalf("the record of Machine %s is %+v", m.Name, d)
			}
		}
		w.after(rails.Apart)
	}
	w.plan()
	if n := starting(); n != 2 {
		t.Errorf("%d of 40 start when it has been confirmed, want 2", n)
	}
}

// TestARequestGoesWithItsScheduledMachine removes a ScheduledMachine whose machine has requested its departure, and
// creates another that adopts the machine: see kubectl 5spot undo-delete.
func TestARequestGoesWithItsScheduledMachine(t *testing.T) {
	w := newWorld(t, 10)
	w.warm()
	w.change(3, func(m *clusterv1.Machine) {
		now := v1alpha1.DepartureTime(w.clock.Now())
		children.Request(m, v1alpha1.Departure{Lane: v1alpha1.UnscheduledLane, Reason: v1alpha1.ScheduledMachineDeleted, RequestedAt: now}, w.clock.Now())
	})
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: box(3)}}
	w.must(w.Delete(w.Context(), sm))
	for i := range 4 {
		if i == 2 {
			sm = &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: box(3), UID: "again"}}
			sm.Spec.ClusterName = lab.Name
			w.must(w.Create(w.Context(), sm))
			w.change(3, func(m *clusterv1.Machine) { m.OwnerReferences = ownedBy(box(3), sm.UID) })
		}
		w.plan()
		w.after(time.Minute)
	}
	if began := w.begin(); len(began) != 0 {
		t.Errorf("%v leave", began)
	}
}
