// SPDX-License-Identifier: Apache-2.0

package machineschedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
)

func TestResolve(t *testing.T) {
	// A Friday.
	noon := time.Date(2025, time.January, 17, 12, 0, 0, 0, time.UTC)
	office := v1alpha1.Schedule{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}}
	closes, opens := noon.Add(6*time.Hour), noon.Add(69*time.Hour)
	type result struct {
		Active, Closed, Unknown bool
		Change                  time.Time
		Status, Reason, Message string
	}
	cases := map[string]struct {
		change func(*v1alpha1.ScheduledMachine)
		at     time.Time
		want   result
	}{
		"Open": {
			at:   noon,
			want: result{Active: true, Change: closes, Status: "True", Reason: "ScheduleActive", Message: "Current time is within schedule: mon-fri 9-17"},
		},
		"Closed": {
			at:   closes,
			want: result{Closed: true, Change: opens, Status: "False", Reason: "ScheduleInactive", Message: "Current time is outside schedule: mon-fri 9-17"},
		},
		"Always": {
			change: func(m *v1alpha1.ScheduledMachine) {
				m.Spec.Schedule.DaysOfWeek, m.Spec.Schedule.HoursOfDay = []string{"mon-sun"}, []string{"0-23"}
			},
			at:   noon,
			want: result{Active: true, Status: "True", Reason: "ScheduleActive", Message: "Current time is within schedule: mon-sun 0-23"},
		},
		"OffIsNotClosed": {
			change: func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Enabled = new(false) },
			at:     closes,
			want:   result{Status: "False", Reason: "ScheduleDisabled", Message: "Schedule is disabled"},
		},
		"UnknownIsNotClosed": {
			change: func(m *v1alpha1.ScheduledMachine) {
				m.Spec.Schedule.HoursOfDay, m.Spec.Schedule.Timezone = []string{"9-24"}, "Mars"
			},
			at: closes,
			want: result{
				Unknown: true, Status: "Unknown", Reason: "ScheduleUnreadable",
				Message: `spec.schedule.hoursOfDay[0]: Invalid value: "9-24": Failed to parse hours: Hours must be 0-23, got: 9-24; hours are 0-23, a range is 9-17; spec.schedule.timezone: Invalid value: "Mars": Invalid timezone: Mars; use a name of the IANA time zone database, such as UTC or Europe/Zurich`,
			},
		},
		"UnknownZone": {
			change: func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Timezone = "Mars" },
			at:     noon,
			want: result{
				Unknown: true, Status: "Unknown", Reason: "TimezoneUnavailable",
				Message: `spec.schedule.timezone: Invalid value: "Mars": Invalid timezone: Mars; use a name of the IANA time zone database, such as UTC or Europe/Zurich`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.ScheduledMachine{Spec: v1alpha1.ScheduledMachineSpec{Schedule: office}}
			if tc.change != nil {
				tc.change(m)
			}
			r := machineschedule.Resolve(m, tc.at)
			c := r.Condition()
			got := result{r.Active, r.Closed(), r.Err != nil, r.Change, string(c.Status), c.Reason, c.Message}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}
