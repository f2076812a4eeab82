// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// orphan adds a Machine that another client deletes and whose ScheduledMachine is gone.
func (w *world) orphan(i int) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: lab.Namespace, Name: fmt.Sprintf("gone-%d-machine", i), UID: types.UID(fmt.Sprintf("orphan-%d", i)),
		DeletionTimestamp: new(metav1.NewTime(w.clock.Now())),
		Annotations:       map[string]string{v1alpha1.PreDrainHookAnnotation: ""},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScheduledMachine", Name: fmt.Sprintf("gone-%d", i), UID: "gone", Controller: new(true),
		}},
	}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = lab.Name, "box"
	return m
}

// starting returns how many orphans may start.
func (w *world) starting() (n int) {
	for i := range w.orphans {
		m := &w.orphans[i]
		if w.r.Roster.RequestGrant(roster.OrphanName(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}), m.UID, w.clock.Now()).Granted {
			n++
		}
	}
	return n
}

// TestMachinesWithoutScheduledMachinesAreNoWayPastTheRails deletes all Machines of a Cluster. The manager has
// no entries for them, as after a restart.
func TestMachinesWithoutScheduledMachinesAreNoWayPastTheRails(t *testing.T) {
	w := newGuarded(t, 0)
	for i := range 40 {
		w.orphans = append(w.orphans, *w.orphan(i))
	}
	for i := range w.orphans {
		m := &w.orphans[i]
		w.r.Roster.Report(roster.OrphanName(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}), roster.OrphanEntry(m, false, w.clock.Now()), w.clock.Now())
	}
	for look := range 2 {
		w.plan()
		if n := w.starting(); n != 0 {
			t.Fatalf("%d start after %d looks", n, look+1)
		}
		first := roster.OrphanName(types.NamespacedName{Namespace: lab.Namespace, Name: w.orphans[0].Name})
		if v := w.r.Roster.CurrentVerdict(first, w.orphans[0].UID); v.Reason != departure.WipeQuarantine {
			t.Errorf("the planner says %+v", v)
		}
		w.after(rails.Apart)
	}
	w.plan()
	if n := w.starting(); n != 2 {
		t.Errorf("%d of 40 start when it has been confirmed, want 2", n)
	}
}
