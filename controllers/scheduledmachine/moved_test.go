// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// moved makes a running Machine one that clusterctl move has just brought: it was made
// and, if leaving is not zero, deleted before this API server knew it.
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

// TestAMovedMachineIsDeletedOnceItsNodeIsFound would leave the Node behind otherwise.
func TestAMovedMachineIsDeletedOnceItsNodeIsFound(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	m := w.moved(monday, time.Time{})
	w.nodeRef(m, "")
	w.clock.SetTime(monday.Add(10 * time.Hour))
	w.settle()
	if m, _ = w.machine(); !m.DeletionTimestamp.IsZero() {
		t.Fatal("the Machine is deleted while nobody knows its Node")
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

// TestADepartureGoesOnAfterAMove begins where it was: in the window, and past the
// deadline that counts from its first beginning.
func TestADepartureGoesOnAfterAMove(t *testing.T) {
	for name, tc := range map[string]struct {
		ago     time.Duration
		skipped bool
	}{
		"before its deadline": {time.Minute, false},
		"after its deadline":  {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.running()
			now := w.clock.Now()
			w.moved(monday.Add(-2*time.Hour), now.Add(-tc.ago))
			w.settle()
			m, _ := w.machine()
			if m.DeletionTimestamp.IsZero() {
				t.Fatal("the departure is forgotten")
			}
			if _, skipped := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; skipped != tc.skipped {
				t.Errorf("drain skipped: %t; want %t", skipped, tc.skipped)
			}
		})
	}
}
