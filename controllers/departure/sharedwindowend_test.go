// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// TestASharedWindowEndIsWorkedOff ends the windows of 40 of 44 machines together, and the other four more than
// a minute later. Two start in each window, as the Event says, although the fleet shrinks.
func TestASharedWindowEndIsWorkedOff(t *testing.T) {
	w := newWorld(t, 44)
	w.warm()
	for i := range 40 {
		w.leaves(v1alpha1.ScheduledLane, i)
	}
	left := 0
	for round := range 22 {
		if round == 7 {
			w.leaves(v1alpha1.ScheduledLane, 40, 41, 42, 43)
		}
		w.plan()
		began := w.begin()
		if len(began) != 2 {
			t.Fatalf("%d machines start in round %d, after %d", len(began), round, left)
		}
		left += len(began)
		events := w.events()
		if wanted := round == 0 || round == 7; wanted != (len(events) > 0) || wanted && !strings.Contains(events[0], "at most 2 of 44 start to leave within 10s") {
			t.Errorf("round %d: events %q", round, events)
		}
		w.after(departurecap.Window)
	}
	if left != 44 {
		t.Errorf("%d of 44 machines left after %s", left, 22*departurecap.Window)
	}
}
