// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

func TestDoubted(t *testing.T) {
	later := time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason  string
		machine lifecycle.Presence
		d, want lifecycle.Decision
	}{
		"Joins": {
			"The clock says that its window is open.", lifecycle.Absent,
			lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineCreating},
			lifecycle.Decision{Phase: lifecycle.Pending, Action: lifecycle.Hold, Reason: lifecycle.ClockDoubted},
		},
		"Runs": {
			"Nothing is taken away.", lifecycle.Present,
			lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineRunning, Recheck: later},
			lifecycle.Decision{Phase: lifecycle.Active, Action: lifecycle.Ensure, Reason: lifecycle.MachineRunning, Recheck: later},
		},
		"Drains": {
			"The clock says that its grace is over.", lifecycle.Leaving,
			lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Expedite, Reason: lifecycle.GracefulShutdown, Cause: lifecycle.WindowClosed},
			lifecycle.Decision{Phase: lifecycle.ShuttingDown, Action: lifecycle.Hold, Reason: lifecycle.GracefulShutdown},
		},
		"Killed": {
			"A person does not ask the clock.", lifecycle.Present,
			lifecycle.Decision{Phase: lifecycle.Terminated, Action: lifecycle.Remove, Cause: lifecycle.KillSwitch},
			lifecycle.Decision{Phase: lifecycle.Terminated, Action: lifecycle.Remove, Cause: lifecycle.KillSwitch},
		},
	} {
		if diff := cmp.Diff(tc.want, lifecycle.Doubted(tc.d, lifecycle.Facts{Machine: tc.machine})); diff != "" {
			t.Errorf("%s: %s\n%s", name, tc.reason, diff)
		}
	}
}
