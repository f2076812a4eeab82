// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	planner "github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// wantOldest checks the metric of the oldest deferred candidate, empty for absent.
func (w *world) wantOldest(seconds string) {
	w.Helper()
	want := ""
	if seconds != "" {
		want = `# HELP fivespot_departure_oldest_deferred_seconds Age of the oldest deferred departure, by namespace and Cluster. Absent if none is deferred.
# TYPE fivespot_departure_oldest_deferred_seconds gauge
fivespot_departure_oldest_deferred_seconds{cluster="lab",namespace="farm"} ` + seconds + "\n"
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.r.Collector())
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fivespot_departure_oldest_deferred_seconds"); err != nil {
		w.Error(err)
	}
}

// TestADeferredMachineIsCountedOnce defers four machines, of which two leave at a time.
func TestADeferredMachineIsCountedOnce(t *testing.T) {
	planner.ResetMetrics()
	w := newWorld(t, 44)
	w.warm()
	w.wantOldest("")
	w.leaves(v1alpha1.UnscheduledLane, 0, 1, 2, 3)
	for range 3 {
		w.plan()
		w.begin()
		w.after(2 * time.Second)
	}
	w.wantOldest("6")
	if got := planner.Capped(lab, "unscheduled"); got != 2 {
		t.Errorf("%v machines are counted, want 2", got)
	}
	w.stays(2)
	w.plan()
	w.leaves(v1alpha1.UnscheduledLane, 2)
	w.plan()
	if got := planner.Capped(lab, "unscheduled"); got != 3 {
		t.Errorf("one that is to leave again is counted: %v, want 3", got)
	}
	w.after(departurecap.Window)
	w.plan()
	w.begin()
	w.plan()
	w.wantOldest("")
	if got := planner.Departures(lab, "unscheduled"); got != 4 {
		t.Errorf("%v departures are counted, want 4", got)
	}
}

// TestAFailedDeletionIsCountedOnce admits a machine three times whose delete call fails.
func TestAFailedDeletionIsCountedOnce(t *testing.T) {
	planner.ResetMetrics()
	w := newWorld(t, 10)
	w.warm()
	w.undeletable = errors.New("a webhook is down")
	w.leaves(v1alpha1.UnscheduledLane, 0)
	for turn := range 3 {
		w.plan()
		if len(w.admitted()) != 1 {
			t.Fatalf("it may not try in turn %d", turn)
		}
		w.after(time.Minute)
		w.plan()
		w.after(time.Minute)
	}
	if got := planner.Departures(lab, "unscheduled"); got != 1 {
		t.Errorf("%v departures are counted, want 1", got)
	}
}

// TestTheSeriesOfAClusterGoWithIt deletes one of two Clusters.
func TestTheSeriesOfAClusterGoWithIt(t *testing.T) {
	planner.ResetMetrics()
	planner.StartClusterSeries(lab)
	w := newWorld(t, 44)
	w.warm()
	w.leaves(v1alpha1.UnscheduledLane, 0, 1, 2)
	w.plan()
	planner.RemoveClusterSeries(client.ObjectKey{Namespace: lab.Namespace, Name: "other"})
	if got := planner.Series(); got != 4 { // departures and capped machines, per lane
		t.Errorf("another Cluster has gone, and %d series are left, want 4", got)
	}
	planner.RemoveClusterSeries(lab)
	if got := planner.Series(); got != 0 {
		t.Errorf("the Cluster has gone, and %d series are left", got)
	}
}

// TestDeferralsAreReportedOnceAMinute defers machines repeatedly.
func TestDeferralsAreReportedOnceAMinute(t *testing.T) {
	w := newWorld(t, 40)
	w.warm()
	var told []string
	for i := range 24 { // One more every five seconds.
		w.leaves(v1alpha1.UnscheduledLane, i)
		w.plan()
		w.begin()
		told = append(told, w.events()...)
		w.after(2 * time.Second)
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], "Warning "+v1alpha1.DepartureCapEngagedEvent+" Departures deferred: at most 2 of 40 start to leave within 10s. To see the machines that wait: kubectl 5spot -n farm rails --cluster lab") {
		t.Errorf("told %q", told)
	}
	w.after(time.Minute)
	w.leaves(v1alpha1.UnscheduledLane, 24, 25, 26, 27)
	w.plan()
	if told := w.events(); len(told) != 1 {
		t.Errorf("a minute later told %q", told)
	}
}
