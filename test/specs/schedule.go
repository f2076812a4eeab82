// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Always is a window that is open.
func Always() v1alpha1.Schedule {
	return v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}, Enabled: new(true)}
}

// Closed is a window that opens in twelve hours.
func Closed() v1alpha1.Schedule {
	return v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{fmt.Sprint((time.Now().UTC().Hour() + 12) % 24)}, Enabled: new(true)}
}

// SetSchedule edits the schedule, as a person would.
func (c *Cluster) SetSchedule(sm *v1alpha1.ScheduledMachine, s v1alpha1.Schedule) {
	c.T.Helper()
	c.must(c.Edit(sm, func() { sm.Spec.Schedule = s }))
}

// SetKillSwitch turns the kill switch on or off.
func (c *Cluster) SetKillSwitch(sm *v1alpha1.ScheduledMachine, on bool) {
	c.T.Helper()
	c.must(c.Edit(sm, func() { sm.Spec.KillSwitch = on }))
}
