// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

const day = 24 * time.Hour

// office is the machine of the documentation.
func office() plan.Machine {
	return plan.Machine{
		Name:     "office",
		Enabled:  true,
		Schedule: schedule.Spec{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}, Timezone: "America/New_York"},
	}
}

// noon is a Friday in January, 12:00 in New York.
var noon = time.Date(2025, 1, 17, 17, 0, 0, 0, time.UTC)

func TestPlan(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		change   func(*plan.Machine)
		at       time.Time
		length   time.Duration
		wantJSON string
		wantText string
	}{
		"OverTheWeekend": {
			reason: "The keys and formats of the JSON are an API.",
			at:     noon.In(time.FixedZone("", 3600)), length: 3 * day,
			wantJSON: `[{"name":"office","timezone":"America/New_York","at":"2025-01-17T17:00:00Z","active":true,"transitions":[` +
				`{"at":"2025-01-17T23:00:00Z","active":false,"local":"Fri 2025-01-17 18:00:00 EST"},` +
				`{"at":"2025-01-20T14:00:00Z","active":true,"local":"Mon 2025-01-20 09:00:00 EST"}]}]`,
			wantText: `office: mon-fri 9-17, America/New_York
  Fri 2025-01-17 12:00:00 EST  inside the window
  Fri 2025-01-17 18:00:00 EST  closes
  Mon 2025-01-20 09:00:00 EST  opens
`,
		},
		"NothingHappens": {
			reason: "An empty list is a list.",
			at:     noon.Add(day), length: day,
			wantJSON: `[{"name":"office","timezone":"America/New_York","at":"2025-01-18T17:00:00Z","active":false,"transitions":[]}]`,
			wantText: `office: mon-fri 9-17, America/New_York
  Sat 2025-01-18 12:00:00 EST  outside the window
  Sun 2025-01-19 12:00:00 EST  no change until then
`,
		},
		"Disabled": {
			reason: "A disabled schedule starts nothing, so nothing is planned; better say what will happen to the machine.",
			change: func(m *plan.Machine) { m.Enabled = false },
			at:     noon, length: 7 * day,
			wantJSON: `[{"name":"office","timezone":"America/New_York","at":"2025-01-17T17:00:00Z","active":false,"transitions":[]}]`,
			wantText: `office: mon-fri 9-17, America/New_York
  Fri 2025-01-17 12:00:00 EST  disabled: nothing is started, and an existing machine stays
`,
		},
		"DisabledAndUnreadable": {
			reason: "It is not judged, but its author will want to know before enabling it.",
			change: func(m *plan.Machine) { m.Enabled, m.Schedule.Timezone = false, "Not/AZone" },
			at:     noon, length: 7 * day,
			wantJSON: `[{"name":"office","timezone":"Not/AZone","at":"2025-01-17T17:00:00Z","active":false,"transitions":[]}]`,
			wantText: `office: never, Not/AZone
  Fri 2025-01-17 17:00:00 UTC  disabled: nothing is started, and an existing machine stays
  the API would refuse it: spec.schedule.timezone: Invalid value: "Not/AZone": Invalid timezone: Not/AZone; use a name of the IANA time zone database, such as UTC or Europe/Zurich
`,
		},
		"KillSwitch": {
			reason: "The JSON is the schedule's own answer; people are told what overrides it.",
			change: func(m *plan.Machine) { m.KillSwitch = true },
			at:     noon, length: time.Hour,
			wantJSON: `[{"name":"office","timezone":"America/New_York","at":"2025-01-17T17:00:00Z","active":true,"transitions":[]}]`,
			wantText: `office: mon-fri 9-17, America/New_York
  Fri 2025-01-17 12:00:00 EST  inside the window
  Fri 2025-01-17 13:00:00 EST  no change until then
  the kill switch is on: no machine runs in any window
`,
		},
		"Paused": {
			reason: "A plan is no promise.",
			change: func(m *plan.Machine) { m.Paused = true },
			at:     noon, length: time.Hour,
			wantJSON: `[{"name":"office","timezone":"America/New_York","at":"2025-01-17T17:00:00Z","active":true,"transitions":[]}]`,
			wantText: `office: mon-fri 9-17, America/New_York
  Fri 2025-01-17 12:00:00 EST  inside the window
  Fri 2025-01-17 13:00:00 EST  no change until then
  it is paused: nothing is done in any window
`,
		},
		"ZoneWithoutAbbreviation": {
			reason: "Where nobody says EST the offset is the name.",
			change: func(m *plan.Machine) { m.Schedule.Timezone = "Asia/Kathmandu" },
			at:     time.Date(2025, 1, 17, 3, 0, 0, 0, time.UTC), length: time.Hour,
			wantJSON: `[{"name":"office","timezone":"Asia/Kathmandu","at":"2025-01-17T03:00:00Z","active":false,"transitions":[` +
				`{"at":"2025-01-17T03:15:00Z","active":true,"local":"Fri 2025-01-17 09:00:00 +0545"}]}]`,
			wantText: `office: mon-fri 9-17, Asia/Kathmandu
  Fri 2025-01-17 08:45:00 +0545  outside the window
  Fri 2025-01-17 09:00:00 +0545  opens
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := office()
			if tc.change != nil {
				tc.change(&m)
			}
			p, err := plan.New(m, tc.at, tc.length)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal([]plan.Plan{p})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantJSON, string(got)); diff != "" {
				t.Errorf("%s\nJSON: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.wantText, plan.Text([]plan.Plan{p})); diff != "" {
				t.Errorf("%s\nText(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUnreadableSchedulesAreNotPlanned(t *testing.T) {
	t.Parallel()
	m := office()
	m.Schedule.HoursOfDay = []string{"9:30"}
	_, err := plan.New(m, noon, day)
	var bad *schedule.FieldError
	if !errors.As(err, &bad) || bad.Field != "hoursOfDay[0]" {
		t.Errorf("New(...): %v, want a *FieldError for hoursOfDay[0]", err)
	}
}

func TestTextHasABlankLineBetweenPlans(t *testing.T) {
	t.Parallel()
	p, err := plan.New(office(), noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("\n"+`office: mon-fri 9-17, America/New_York
  Fri 2025-01-17 12:00:00 EST  inside the window
  Fri 2025-01-17 13:00:00 EST  no change until then
`, 2)[1:]
	if diff := cmp.Diff(want, plan.Text([]plan.Plan{p, p})); diff != "" {
		t.Errorf("Text(...): -want, +got:\n%s", diff)
	}
}
