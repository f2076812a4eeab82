// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the test must exist on every machine

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// ahead is how long before its edge the manager with the shifted clock starts.
const ahead = 45 * time.Second

// TestEdgeIsMetInRealTime shifts the clock of a manager so that an hour begins soon. That manager replaces the shared
// one, so it is not parallel.
func TestEdgeIsMetInRealTime(t *testing.T) {
	l := newLab(t, "edge")
	shifted := filepath.Join(t.TempDir(), "shifted")
	// make build uses the same flags, so all packages are compiled already.
	build := exec.CommandContext(timeout(t, patience), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", shifted, "../bench/shifted")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	zone, edge := nextEdge(t, time.Now().Add(2*patience))
	closes := l.started("closes", inHourOf(edge.Add(-time.Minute), zone))
	opens := l.started("opens", inHourOf(edge, zone))
	l.waitPhase(opens, inactive, metav1.ConditionTrue)
	l.waitPhase(closes, active, metav1.ConditionTrue)
	if !opens.Status.NextActivation.Time.Equal(edge) {
		t.Errorf("nextActivation must be the edge %v, got %v", edge, opens.Status.NextActivation)
	}
	if !closes.Status.NextCleanup.Time.Equal(edge) {
		t.Errorf("nextCleanup must be the edge %v, got %v", edge, closes.Status.NextCleanup)
	}

	l.must(shared.Manager.Stop())
	defer func() { l.must(shared.Manager.Start(timeout(t, patience))) }()
	mark, comes := l.mark(), time.Now().Add(ahead)
	l.startProgram("5spot-edge", shifted, append(slices.Clone(system.Unlimited), "--clock-offset="+edge.Sub(comes).String())...)
	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.waitPhase(opens, active, metav1.ConditionTrue)
	met := 0
	for _, w := range l.writes(mark) {
		if resource := w.ObjectRef.Resource; resource == "machines" && accepted(w) && (w.Verb == "delete" || w.ResponseStatus.Code == 201) {
			met++
			if lag := w.RequestReceivedTimestamp.Sub(comes); lag < 0 || lag > 5*time.Second {
				t.Errorf("an edge must be met, neither before nor long after; it took %v: %s", lag, describe(w))
			}
		}
	}
	if met != 2 {
		t.Errorf("%d Machines were made or deleted, want one of each", met)
	}
}

// nextEdge is the first instant after now at which an hour begins in some zone.
func nextEdge(t *testing.T, now time.Time) (zone string, edge time.Time) {
	t.Helper()
	for _, name := range []string{"UTC", "Asia/Kolkata", "Asia/Kathmandu"} {
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

// inHourOf sets a window of the one hour that contains an instant.
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
