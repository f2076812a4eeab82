// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"errors"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// TestAPersonHoldsDepartures holds both lanes of a Cluster, and releases them.
func TestAPersonHoldsDepartures(t *testing.T) {
	w := newWorld(t, 40)
	w.warm()
	w.annotate(map[string]string{v1alpha1.HoldDeparturesAnnotation: "a bad template\nsee INC-12"})
	w.leaves(v1alpha1.ScheduledLane, 0)
	w.leaves(v1alpha1.UnscheduledLane, 1)
	for range 3 {
		if next := w.plan(); len(w.begin()) != 0 || next != 0 {
			t.Errorf("departures start although they are held; the planner asks again in %s", next)
		}
		w.after(departurecap.MaxWait)
	}
	const want = "The departures of Cluster lab are held: a bad template see INC-12. To end this: kubectl 5spot -n farm release-departures lab"
	for i := range 2 {
		if v := w.waits(i); v.Reason != v1alpha1.DeparturesHeldReason || v.Message != want {
			t.Errorf("box %d: %+v", i, v)
		}
	}
	w.annotate(nil)
	if w.plan(); len(w.begin()) != 2 {
		t.Errorf("departures do not start after the release: %+v", w.waits(0))
	}
	w.plan()
	if len(w.warnings) != 2 || !strings.Contains(w.warnings[0], "A person holds departures") || !strings.Contains(w.warnings[1], "A person no longer holds departures") {
		t.Errorf("logged %q", w.warnings)
	}
}

// TestAnUnreadableClusterReleasesNothing uses a cache that fails to return the Cluster.
func TestAnUnreadableClusterReleasesNothing(t *testing.T) {
	w := newWorld(t, 40)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 1)
	w.unread = errors.New("the cache is not ready")
	if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: lab}); err == nil || len(w.begin()) != 0 {
		t.Errorf("departures start although the hold is unknown: %v", err)
	}
}

// TestAHoldWithoutACap has no other rail.
func TestAHoldWithoutACap(t *testing.T) {
	w := newWorld(t, 3)
	w.r.Cap = 0
	w.annotate(map[string]string{v1alpha1.HoldDeparturesAnnotation: ""})
	w.leaves(v1alpha1.UnscheduledLane, 0, 1, 2)
	w.plan()
	const want = "The departures of Cluster lab are held. To end this: kubectl 5spot -n farm release-departures lab"
	if v := w.waits(0); len(w.begin()) != 0 || v.Message != want {
		t.Errorf("departures start although they are held: %+v", v)
	}
}
