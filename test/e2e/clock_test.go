// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the test are those of any machine

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// soon is how far away an edge of the real clock may be for a test to wait for it.
const soon = 4 * time.Minute

// TestEdgeOfTheRealClockIsMet runs when an hour begins soon in one of
// the zones: whole hours, halves and quarters. Elsewhen edges are tested with a
// clock that can be set.
func TestEdgeOfTheRealClockIsMet(t *testing.T) {
	t.Parallel()
	zone, edge := nextEdge(t, time.Now().Add(time.Minute))
	if wait := time.Until(edge); wait > soon {
		t.Skipf("the next hour of any zone begins in %v, in %s; this test waits for %v at most", wait.Round(time.Second), zone, soon)
	}
	l := newLab(t, "edge")
	before, after := edge.Add(-time.Minute), edge
	closes := l.started("closes", inHourOf(before, zone))
	opens := l.started("opens", inHourOf(after, zone))
	l.waitPhase(opens, inactive, metav1.ConditionTrue)
	l.waitPhase(closes, active, "")
	if !opens.Status.NextActivation.Time.Equal(edge) {
		t.Errorf("nextActivation must be the edge %v, got %v", edge, opens.Status.NextActivation)
	}
	if !closes.Status.NextCleanup.Time.Equal(edge) {
		t.Errorf("nextCleanup must be the edge %v, got %v", edge, closes.Status.NextCleanup)
	}
	mark := l.mark()
	pause(t, time.Until(edge))
	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.waitPhase(opens, active, metav1.ConditionTrue)
	for _, w := range l.writes(mark) {
		if resource := w.ObjectRef.Resource; resource == "machines" && accepted(w) && (w.Verb == "delete" || w.ResponseStatus.Code == 201) {
			if lag := w.RequestReceivedTimestamp.Sub(edge); lag < 0 || lag > 5*time.Second {
				t.Errorf("an edge must be met, neither before nor long after; it took %v: %s", lag, describe(w))
			}
		}
	}
}

// nextEdge is the first instant after now at which an hour begins in some zone.
func nextEdge(t *testing.T, now time.Time) (zone string, edge time.Time) {
	t.Helper()
	for _, name := range []string{"UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Eucla"} {
		location, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		local := now.In(location)
		next := time.Date(local.Year(), local.Month(), local.Day(), local.Hour()+1, 0, 0, 0, location)
		if edge.IsZero() || next.Before(edge) {
			zone, edge = name, next
		}
	}
	return zone, edge
}

// inHourOf makes a window of the one hour of the one day that an instant is in.
func inHourOf(at time.Time, zone string) func(*v1alpha1.ScheduledMachine) {
	location, err := time.LoadLocation(zone)
	if err != nil {
		panic(err) // nextEdge has loaded it
	}
	local := at.In(location)
	return func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.Schedule = v1alpha1.Schedule{
			DaysOfWeek: []string{strings.ToLower(local.Format("Mon"))},
			HoursOfDay: []string{fmt.Sprint(local.Hour())}, Timezone: zone,
		}
	}
}
