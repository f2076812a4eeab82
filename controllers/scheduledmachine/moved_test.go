// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// moved changes a running Machine to one that clusterctl move has just created here. created and, if not zero, leaving
// are earlier times on the source cluster.
func (w *world) moved(created, leaving time.Time) *clusterv1.Machine {
	w.Helper()
	m, _ := w.machine()
	w.Edit(m, func() {
		m.Annotations[v1alpha1.CreatedAnnotation] = created.Format(time.RFC3339)
		if !leaving.IsZero() {
			m.Annotations[v1alpha1.DepartureAnnotation] = v1alpha1.NewDeparture(v1alpha1.WindowClosed, leaving, "a").String()
		}
		m.Spec.ProviderID = "test://box"
	})
	return m
}

func (w *world) nodeRef(m *clusterv1.Machine, name string) {
	w.Helper()
	before := m.DeepCopy()
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: name}
	w.Must(w.Client.Status().Patch(w.Context(), m, client.MergeFrom(before)))
}

// TestAMovedMachineIsDeletedOnceItsNodeIsFound checks that the deletion waits for the Node. Otherwise the Node would
// remain.
func TestAMovedMachineIsDeletedOnceItsNodeIsFound(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	m := w.moved(monday, time.Time{})
	w.nodeRef(m, "")
	w.clock.SetTime(monday.Add(10 * time.Hour))
	w.settle()
	if m, _ = w.machine(); !m.DeletionTimestamp.IsZero() {
		t.Fatal("the Machine is deleted while its Node is unknown")
	}
	if w.sm.Status.Phase != v1alpha1.PhaseShuttingDown {
		t.Errorf("phase %s after the window, want %s", w.sm.Status.Phase, v1alpha1.PhaseShuttingDown)
	}
	w.nodeRef(m, "box-node")
	w.settle()
	if m, _ = w.machine(); m.DeletionTimestamp.IsZero() {
		t.Error("the Machine stays although its Node is known")
	}
}

// TestADepartureGoesOnAfterAMove moves a Machine in the middle of its departure. The departure continues in the window,
// with its own budget.
func TestADepartureGoesOnAfterAMove(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	w.moved(monday.Add(-2*time.Hour), w.clock.Now().Add(-time.Hour))
	w.settle()
	m, _ := w.machine()
	if m.DeletionTimestamp.IsZero() {
		t.Fatal("the departure is forgotten")
	}
	if _, skipped := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; skipped {
		t.Error("it is not drained")
	}
	d, ok := children.DepartureOf(m, w.clock.Now())
	if !ok || d.Reason != v1alpha1.WindowClosed || !d.Since.Time.Equal(w.clock.Now().Truncate(time.Second)) {
		t.Errorf("on record is %+v", d)
	}
}

// TestARequestDoesNotGoOnAfterAMove moves a wanted Machine whose departure was only requested: its Node is not
// cordoned.
func TestARequestDoesNotGoOnAfterAMove(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	m, _ := w.machine()
	w.Edit(m, func() {
		d := v1alpha1.Departure{Lane: v1alpha1.UnscheduledLane, Reason: v1alpha1.WindowClosed, RequestedAt: v1alpha1.DepartureTime(w.clock.Now()), MachineUID: "another"}
		m.Annotations[v1alpha1.DepartureAnnotation] = d.String()
	})
	w.settle()
	if m, _ = w.machine(); !m.DeletionTimestamp.IsZero() || m.Annotations[v1alpha1.DepartureAnnotation] != "" {
		t.Errorf("it leaves in its window, or keeps the record %s", m.Annotations[v1alpha1.DepartureAnnotation])
	}
}

// TestARecordOfAnotherMachineIsPlanned annotates wanted Machines by hand, like the restore of a backup. They leave
// within the departure cap, and are drained.
func TestARecordOfAnotherMachineIsPlanned(t *testing.T) {
	for _, reason := range []v1alpha1.DepartureReason{v1alpha1.WindowClosed, v1alpha1.KilledByPerson, v1alpha1.ReclaimedByOwner, v1alpha1.ClusterDeleted} {
		for _, uid := range []types.UID{"another", ""} {
			t.Run(string(reason)+"/"+string(uid), func(t *testing.T) {
				c := newCrowd(t, 4, nil)
				for _, w := range c.all {
					m, _ := w.machine()
					w.Edit(m, func() {
						d := v1alpha1.NewDeparture(reason, c.clock.Now(), "a")
						d.MachineUID = uid
						m.Annotations[v1alpha1.DepartureAnnotation] = d.String()
					})
				}
				for _, want := range []int{1, 2} {
					c.look()
					c.look()
					if got := c.leaving(); len(got) != want {
						t.Fatalf("%v leave, want %d", got, want)
					}
					c.clock.SetTime(c.clock.Now().Add(departurecap.Window))
				}
				m, _ := c.all[c.leaving()[0]].machine()
				if d, ok := children.DepartureOf(m, c.clock.Now()); !ok || d.Urgent() || d.Lane == v1alpha1.ExemptLane {
					t.Errorf("on record is %+v", d)
				}
				if _, skipped := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; skipped {
					t.Error("it is not drained")
				}
			})
		}
	}
}

// TestAMachineOfAnotherControllerKeepsItsHost gives the Machine to another controller. When the window closes, its
// references are not deleted before the Machine is gone.
func TestAMachineOfAnotherControllerKeepsItsHost(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	m, _ := w.machine()
	w.Edit(m, func() {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other", Controller: new(true)}}
	})
	w.clock.SetTime(monday.Add(10 * time.Hour))
	w.settle()
	infra, found := w.infra()
	if !found || !infra.GetDeletionTimestamp().IsZero() {
		t.Fatal("the infrastructure of a Machine that runs is deleted")
	}
	if text := "Machine box-machine exists but does not belong to this ScheduledMachine"; !strings.Contains(w.sm.Status.Message, text) {
		t.Errorf("it says %q", w.sm.Status.Message)
	}
	w.Edit(m, func() { m.Finalizers = nil })
	w.Must(w.Client.Delete(w.Context(), m))
	w.settle()
	if infra, found = w.infra(); found && infra.GetDeletionTimestamp().IsZero() {
		t.Error("the Machine is gone, and its infrastructure stays")
	}
}
