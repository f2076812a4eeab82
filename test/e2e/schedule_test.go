// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// always is a window that is open.
func always() v1alpha1.Schedule {
	return v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}, Enabled: new(true)}
}

// closed is a window that opens in twelve hours.
func closed() v1alpha1.Schedule {
	return v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{fmt.Sprint((time.Now().UTC().Hour() + 12) % 24)}, Enabled: new(true)}
}

// outside makes a ScheduledMachine that is not wanted now.
func outside(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule = closed() }

// closeWindow and openWindow edit the schedule, as an operator would.
func (l *lab) closeWindow(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.edit(sm, func() { sm.Spec.Schedule = closed() })
}

func (l *lab) openWindow(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.edit(sm, func() { sm.Spec.Schedule = always() })
}

func (l *lab) enable(sm *v1alpha1.ScheduledMachine, on bool) {
	l.t.Helper()
	l.edit(sm, func() { sm.Spec.Schedule.Enabled = &on })
}

func (l *lab) killSwitch(sm *v1alpha1.ScheduledMachine, on bool) {
	l.t.Helper()
	l.edit(sm, func() { sm.Spec.KillSwitch = on })
}
