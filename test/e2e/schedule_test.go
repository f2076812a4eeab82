// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
)

// always is an open window, closed is one that opens in twelve hours.
func always() v1alpha1.Schedule { return specs.Always() }
func closed() v1alpha1.Schedule { return specs.Closed() }

// outside closes the window of a ScheduledMachine.
func outside(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule = closed() }

// closeWindow and openWindow edit the schedule, as a person would.
func (l *lab) closeWindow(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.specs().SetSchedule(sm, closed())
}

func (l *lab) openWindow(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.specs().SetSchedule(sm, always())
}

func (l *lab) disable(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.edit(sm, func() { sm.Spec.Schedule.Enabled = new(false) })
}

func (l *lab) killSwitch(sm *v1alpha1.ScheduledMachine, on bool) {
	l.t.Helper()
	l.specs().SetKillSwitch(sm, on)
}
