// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// newLeaving returns a machine that has just started to leave, and the deadline of its departure.
func newLeaving(t *testing.T) (w *world, deadline time.Time) {
	t.Helper()
	w = newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "10m" })
	w.running()
	w.clock.SetTime(monday.Add(9*time.Hour + time.Second))
	w.settle()
	return w, w.clock.Now().Add(10 * time.Minute)
}

// wantInfrastructure checks whether the infrastructure is being deleted.
func (w *world) wantInfrastructure(deleted bool) {
	w.Helper()
	if i, _ := w.infra(); i.GetDeletionTimestamp().IsZero() == deleted {
		w.Errorf("at %s the infrastructure is being deleted: %t, want %t", w.clock.Now(), !deleted, deleted)
	}
}

// TestAFailedDeletionOfTheInfrastructureIsRetried has an API server that does not answer the deletion at the deadline.
func TestAFailedDeletionOfTheInfrastructureIsRetried(t *testing.T) {
	w, deadline := newLeaving(t)
	failed := false
	w.Fail = func(n int) (before, after error) {
		if !failed && strings.HasPrefix(w.Writes[n], "delete ") {
			failed = true
			return errors.New("timeout"), nil
		}
		return nil, nil
	}
	w.clock.SetTime(deadline)
	w.reconcile()
	if w.wantInfrastructure(false); !failed {
		t.Fatal("nothing is deleted at the deadline")
	}
	w.clock.SetTime(deadline.Add(30 * time.Second))
	w.settle()
	w.wantInfrastructure(true)
}

// TestThePauseOfAClusterEndsNoDeparture pauses a Cluster until after the deadline of a departure. Cluster API drains
// nothing meanwhile.
func TestThePauseOfAClusterEndsNoDeparture(t *testing.T) {
	w, _ := newLeaving(t)
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = new(true) })
	w.settle()
	w.clock.SetTime(time.Now()) // Cluster API dates the condition by its own clock.
	w.Edit(w.cluster, func() { w.cluster.Spec.Paused = nil })
	w.settle()
	w.wantInfrastructure(false)
	paused := conditions.Get(w.sm, clusterv1.PausedCondition)
	if paused == nil || paused.Status != metav1.ConditionFalse {
		t.Fatalf("the pause is over: %+v", paused)
	}
	deadline := paused.LastTransitionTime.Add(10 * time.Minute)
	w.clock.SetTime(deadline.Add(-time.Second))
	w.settle()
	w.wantInfrastructure(false)
	w.clock.SetTime(deadline)
	w.settle()
	w.wantInfrastructure(true)
}
