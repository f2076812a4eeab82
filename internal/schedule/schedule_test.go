// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

// mustParse is for schedules that are known to be valid.
func mustParse(tb testing.TB, days, hours, zone string) schedule.Schedule {
	tb.Helper()
	s, err := schedule.Parse(schedule.Spec{DaysOfWeek: []string{days}, HoursOfDay: []string{hours}, Timezone: zone})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func instant(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

func TestAtMeetsEveryKindOfEdge(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason            string
		days, hours, zone string
		at                string
		active            bool
		change            string
	}{
		"LastNanosecondIsInside": {
			reason: "The window is half open, whatever the resolution of the clock.",
			days:   "mon-fri", hours: "9-17", zone: "UTC",
			at: "2025-01-15T17:59:59.999999999Z", active: true, change: "2025-01-15T18:00:00Z",
		},
		"AdjacentWindowsAreOne": {
			reason: "An edge at which the answer stays the same is no edge.",
			days:   "mon-tue", hours: "22-23,0-1", zone: "UTC",
			at: "2025-01-13T22:00:00Z", active: true, change: "2025-01-14T02:00:00Z",
		},
		"MissingHourNeverHappens": {
			reason: "On 9 March 2025 New York has no 02:00; the next one is a week later.",
			days:   "sun", hours: "2", zone: "America/New_York",
			at: "2025-03-09T05:00:00Z", active: false, change: "2025-03-16T06:00:00Z",
		},
		"WindowThatBeginsInTheGapOpensAfterIt": {
			reason: "02:00 is skipped, so 2-4 opens at 03:00 EDT, the instant of the jump.",
			days:   "sun", hours: "2-4", zone: "America/New_York",
			at: "2025-03-09T06:59:59Z", active: false, change: "2025-03-09T07:00:00Z",
		},
		"RepeatedHourCountsTwice": {
			reason: "01:00 to 02:00 happens in EDT and again in EST, without a break.",
			days:   "sun", hours: "1", zone: "America/New_York",
			at: "2025-11-02T05:00:00Z", active: true, change: "2025-11-02T07:00:00Z",
		},
		"WindowBeforeTheRepeatedHourOpensTwice": {
			reason: "Santiago goes from 24:00 back to 23:00: Saturday 23 lasts two hours, Sunday begins once.",
			days:   "sat", hours: "23", zone: "America/Santiago",
			at: "2025-04-06T02:00:00Z", active: true, change: "2025-04-06T04:00:00Z",
		},
		"HalfHourShiftShortensAnHour": {
			reason: "Lord Howe jumps from 02:00 to 02:30, so hour 2 has 30 minutes.",
			days:   "sun", hours: "2", zone: "Australia/Lord_Howe",
			at: "2025-10-04T15:30:00Z", active: true, change: "2025-10-04T16:00:00Z",
		},
		"HalfHourShiftLengthensAnHour": {
			reason: "Lord Howe falls from 02:00 to 01:30, so hour 1 has 90 minutes.",
			days:   "sun", hours: "1", zone: "Australia/Lord_Howe",
			at: "2025-04-05T14:00:00Z", active: true, change: "2025-04-05T15:30:00Z",
		},
		"ShiftClosesAWindowInTheMiddleOfItsHour": {
			reason: "Caracas went from 02:30 to 03:00 on 1 May 2016.",
			days:   "sun", hours: "2", zone: "America/Caracas",
			at: "2016-05-01T06:30:00Z", active: true, change: "2016-05-01T07:00:00Z",
		},
		"ShiftOpensAWindowInTheMiddleOfItsHour": {
			reason: "Monrovia went from 00:00:00 to 00:44:30 on 7 January 1972.",
			days:   "fri", hours: "0", zone: "Africa/Monrovia",
			at: "1972-01-07T00:44:29Z", active: false, change: "1972-01-07T00:44:30Z",
		},
		"OffsetWithSeconds": {
			reason: "Before that Monrovia was 44 minutes and 30 seconds behind.",
			days:   "mon", hours: "9", zone: "Africa/Monrovia",
			at: "1971-03-01T09:44:29Z", active: false, change: "1971-03-01T09:44:30Z",
		},
		"QuarterHourOffset": {
			reason: "Chatham is 13:45 ahead in its summer.",
			days:   "thu", hours: "9", zone: "Pacific/Chatham",
			at: "2025-01-15T19:14:59Z", active: false, change: "2025-01-15T19:15:00Z",
		},
		"SkippedDayNeverHappens": {
			reason: "Apia had no Friday 30 December 2011; the next one is 6 January.",
			days:   "fri", hours: "0-23", zone: "Pacific/Apia",
			at: "2011-12-30T10:00:00Z", active: false, change: "2012-01-05T10:00:00Z",
		},
		"SkippedDayJoinsItsNeighbours": {
			reason: "Apia's Thursday ran straight into Saturday.",
			days:   "thu,sat", hours: "0-23", zone: "Pacific/Apia",
			at: "2011-12-29T10:00:00Z", active: true, change: "2011-12-31T10:00:00Z",
		},
		"RepeatedDayCountsTwice": {
			reason: "Kwajalein crossed the date line eastward on 30 September 1969 and repeated most of a day.",
			days:   "tue", hours: "0-23", zone: "Pacific/Kwajalein",
			at: "1969-09-29T13:00:00Z", active: true, change: "1969-10-01T12:00:00Z",
		},
		"RamadanIsNotSummer": {
			reason: "Casablanca leaves its standard +01 for +00 in Ramadan: 02:00 happens twice.",
			days:   "sun", hours: "2", zone: "Africa/Casablanca",
			at: "2025-02-23T01:00:00Z", active: true, change: "2025-02-23T03:00:00Z",
		},
		"MidnightIsMissing": {
			reason: "Havana jumps from 00:00 to 01:00, so 9 March 2025 has no hour 0.",
			days:   "sun", hours: "0", zone: "America/Havana",
			at: "2025-03-09T04:00:00Z", active: false, change: "2025-03-16T04:00:00Z",
		},
		"MidnightIsMissingAndTheDayOpensLate": {
			reason: "Beirut's 30 March 2025 begins at 01:00, one second after 23:59:59.",
			days:   "sun", hours: "0-23", zone: "Asia/Beirut",
			at: "2025-03-29T21:59:59Z", active: false, change: "2025-03-29T22:00:00Z",
		},
		"MidnightIsRepeated": {
			reason: "Havana falls from 01:00 to 00:00.",
			days:   "sun", hours: "0", zone: "America/Havana",
			at: "2025-11-02T04:00:00Z", active: true, change: "2025-11-02T06:00:00Z",
		},
		"NegativeSummerTime": {
			reason: "Dublin's database entry calls winter the exception; its clock is London's.",
			days:   "sun", hours: "1", zone: "Europe/Dublin",
			at: "2025-10-26T00:00:00Z", active: true, change: "2025-10-26T02:00:00Z",
		},
		"YearWithoutLeapDay": {
			reason: "2100 is no leap year: 1 March is a Monday.",
			days:   "mon", hours: "0", zone: "UTC",
			at: "2100-02-28T23:59:59Z", active: false, change: "2100-03-01T00:00:00Z",
		},
		"RulesGoOnAfterTheTable": {
			reason: "The database lists instants up to 2037 and a rule from there.",
			days:   "thu", hours: "9-17", zone: "America/New_York",
			at: "2100-07-01T12:59:59Z", active: false, change: "2100-07-01T13:00:00Z",
		},
		"LastDayOfADistantLeapYear": {
			reason: "Package time gives a period that ended yesterday on this day; we must move on all the same.",
			days:   "tue", hours: "0", zone: "Europe/London",
			at: "2040-12-31T12:00:00Z", active: false, change: "2041-01-01T00:00:00Z",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			active, change := mustParse(t, tc.days, tc.hours, tc.zone).At(instant(t, tc.at))
			if active != tc.active || !change.Equal(instant(t, tc.change)) {
				t.Errorf("%s\nAt(%s): %t until %v, want %t until %s", tc.reason, tc.at, active, change, tc.active, tc.change)
			}
			if change.Location() != time.UTC {
				t.Errorf("At(%s): the change is in %v, want UTC", tc.at, change.Location())
			}
		})
	}
}

func TestAtThatNeverChanges(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		s      schedule.Schedule
		at     time.Time
		active bool
	}{
		"Always": {
			reason: "All hours of all days are not a window: nothing to wake up for.",
			s:      mustParse(t, "sat-fri", "0-23", "America/New_York"), active: true,
		},
		"ZeroValue": {reason: "A schedule that was not parsed is never active."},
		"LastWindowEver": {
			reason: "The change falls into the year 10000, which JSON cannot hold.",
			s:      mustParse(t, "sat", "0", "UTC"), at: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		},
		"EndOfTime": {
			reason: "No API can write the year 10000, so nothing changes after it.",
			s:      mustParse(t, "mon", "9", "UTC"), at: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if active, change := tc.s.At(tc.at); active != tc.active || !change.IsZero() {
				t.Errorf("%s\nAt(%v): %t until %v, want %t for ever", tc.reason, tc.at, active, change, tc.active)
			}
		})
	}
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "mon-fri", "9-17", "UTC")
	up := func(text string) schedule.Transition { return schedule.Transition{At: instant(t, text), Active: true} }
	down := func(text string) schedule.Transition { return schedule.Transition{At: instant(t, text)} }
	cases := map[string]struct {
		reason   string
		from, to string
		want     []schedule.Transition
	}{
		"OpenAtTheBeginningClosedAtTheEnd": {
			reason: "What holds at from is At's to say; what happens at to still counts.",
			from:   "2025-01-13T09:00:00Z", to: "2025-01-14T09:00:00Z",
			want: []schedule.Transition{down("2025-01-13T18:00:00Z"), up("2025-01-14T09:00:00Z")},
		},
		"OverTheWeekend": {
			reason: "Days without a window have no transitions.",
			from:   "2025-01-17T12:00:00Z", to: "2025-01-20T12:00:00Z",
			want: []schedule.Transition{down("2025-01-17T18:00:00Z"), up("2025-01-20T09:00:00Z")},
		},
		"Backwards": {
			reason: "An interval that ends before it begins holds nothing.",
			from:   "2025-01-20T12:00:00Z", to: "2025-01-17T12:00:00Z",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slices.Collect(s.Transitions(instant(t, tc.from), instant(t, tc.to)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nTransitions(%s, %s): -want, +got:\n%s", tc.reason, tc.from, tc.to, diff)
			}
		})
	}
}

func TestTransitionsStopWithTheirReader(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "mon", "9", "UTC")
	for range s.Transitions(time.Unix(0, 0), instant(t, "9999-12-31T00:00:00Z")) {
		return // The iteration stops here. All transitions would take a while.
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		spec   schedule.Spec
		want   string
	}{
		"AuthorsWords": {
			reason: "People look for what they wrote, not for a normal form of it.",
			spec:   schedule.Spec{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}, Timezone: "UTC"},
			want:   "mon-fri 9-17",
		},
		"ItemsAreJoined": {
			reason: "Two items and one comma list mean the same.",
			spec:   schedule.Spec{DaysOfWeek: []string{"mon-wed", "fri"}, HoursOfDay: []string{"6-9", "18-21"}, Timezone: "UTC"},
			want:   "mon-wed,fri 6-9,18-21",
		},
		"NoWhiteSpace": {
			reason: "The text stands in the middle of a condition's message.",
			spec:   schedule.Spec{DaysOfWeek: []string{" mon ,\n fri"}, HoursOfDay: []string{"9 -\t17"}, Timezone: "UTC"},
			want:   "mon,fri 9-17",
		},
		"NoDays": {
			reason: "Half a schedule would read as if it meant something.",
			spec:   schedule.Spec{HoursOfDay: []string{"9-17"}, Timezone: "UTC"},
			want:   "never",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := schedule.Parse(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.String(); got != tc.want {
				t.Errorf("%s\nString(): %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestSchedulesOfTheSameWordsAreEqual(t *testing.T) {
	t.Parallel()
	one, same := mustParse(t, "mon", "9", "Europe/Zurich"), mustParse(t, "mon", "9", "Europe/Zurich")
	if one != same {
		t.Error("two Schedules of the same words differ")
	}
	if one == mustParse(t, "mon", "9", "Europe/Vaduz") {
		t.Error("Schedules of different zones are equal")
	}
}

func TestZeroValueIsInUTC(t *testing.T) {
	t.Parallel()
	if zone := (schedule.Schedule{}).Zone(); zone != time.UTC {
		t.Errorf("Zone(): %v, want UTC", zone)
	}
}

var sink time.Time

func BenchmarkAt(b *testing.B) {
	cases := map[string]struct{ days, hours, zone, at string }{
		"NextHour":       {"mon-fri", "9-17", "UTC", "2025-01-15T12:00:00Z"},
		"NextWeek":       {"mon", "9", "America/New_York", "2025-01-13T15:00:00Z"},
		"AcrossDST":      {"sun", "2", "America/New_York", "2025-03-03T12:00:00Z"},
		"DistantLeapDay": {"tue", "0", "Europe/London", "2040-12-25T12:00:00Z"},
		"Always":         {"mon-sun", "0-23", "America/New_York", "2025-01-15T12:00:00Z"},
	}
	for name, c := range cases {
		b.Run(name, func(b *testing.B) {
			s, at := mustParse(b, c.days, c.hours, c.zone), instant(b, c.at)
			b.ReportAllocs()
			for b.Loop() {
				_, sink = s.At(at)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	spec := schedule.Spec{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}, Timezone: "America/New_York"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schedule.Parse(spec); err != nil {
			b.Fatal(err)
		}
	}
}
