// SPDX-License-Identifier: Apache-2.0

// Package machineschedule answers what the schedule of a ScheduledMachine is at an instant. No other package knows how
// a ScheduledMachine stores its schedule, except package variable, which creates ScheduledMachines.
package machineschedule

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

// Resolved is the schedule of a ScheduledMachine at one instant.
type Resolved struct {
	// Spec is the schedule as its author wrote it, also if it is invalid.
	Spec schedule.Spec
	// Schedule is the parsed Spec. If Err is set, it is the zero value, which is never active.
	Schedule schedule.Schedule
	// Enabled reports that the schedule is on.
	Enabled bool
	// Active reports that the schedule is on and its window is open.
	Active bool
	// Change is when the window opens or closes next, zero if never, if Err is set, and while the schedule is off.
	Change time.Time
	// Err means that the state of the window is unknown. It joins one *schedule.FieldError per invalid value.
	Err error
}

// Resolve returns the schedule of m at now.
func Resolve(m *v1alpha1.ScheduledMachine, now time.Time) Resolved {
	r := Resolved{Spec: Of(m), Enabled: m.ScheduleEnabled()}
	r.Schedule, r.Err = schedule.Parse(r.Spec)
	if r.Enabled && r.Err == nil {
		r.Active, r.Change = r.Schedule.At(now)
	}
	return r
}

// Of returns the schedule of m as its author wrote it.
func Of(m *v1alpha1.ScheduledMachine) schedule.Spec { return Spec(&m.Spec.Schedule) }

// Spec converts a schedule of the API, and sets the default time zone.
func Spec(s *v1alpha1.Schedule) schedule.Spec {
	return schedule.Spec{DaysOfWeek: s.DaysOfWeek, HoursOfDay: s.HoursOfDay, Timezone: cmp.Or(s.Timezone, "UTC")}
}

// Closed reports that the schedule is on and its window is known to be closed.
func (r Resolved) Closed() bool { return r.Enabled && r.Err == nil && !r.Active }

// Condition returns the condition Scheduled, without its transition time: whether the window is open, and why.
func (r Resolved) Condition() metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ScheduledCondition, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ScheduleInactiveReason, Message: "Current time is outside schedule: " + r.Schedule.String(),
	}
	switch {
	case !r.Enabled:
		c.Reason, c.Message = v1alpha1.ScheduleDisabledReason, "Schedule is disabled"
	case r.Err != nil:
		c.Status = metav1.ConditionUnknown
		c.Reason, c.Message = r.unknown()
	case r.Active:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ScheduleActiveReason
		c.Message = "Current time is within schedule: " + r.Schedule.String()
	}
	return c
}

// unknown returns why the state is unknown. It distinguishes an unknown time zone from other errors, because a newer
// build may know the zone.
func (r Resolved) unknown() (reason, message string) {
	reason = v1alpha1.TimezoneUnavailableReason
	var problems []string
	for _, bad := range schedule.FieldErrors(r.Err) {
		problems = append(problems, "spec.schedule."+bad.Error())
		if bad.Field != "timezone" {
			reason = v1alpha1.ScheduleUnreadableReason
		}
	}
	return reason, strings.Join(problems, "; ")
}
