// SPDX-License-Identifier: Apache-2.0

package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

func TestParseReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, err := schedule.Parse(schedule.Spec{
		DaysOfWeek: []string{"mon", "friday"},
		HoursOfDay: []string{"9:30", "9-17", "24"},
		Timezone:   "utc",
	})
	want := strings.Join([]string{
		`daysOfWeek[1]: Invalid value: "friday": Failed to parse weekdays: Invalid day: friday; days are mon, tue, wed, thu, fri, sat, sun, a range is mon-fri`,
		`hoursOfDay[0]: Invalid value: "9:30": Failed to parse hours: Invalid hour: 9:30; hours are 0-23, a range is 9-17`,
		`hoursOfDay[2]: Invalid value: "24": Failed to parse hours: Hour must be 0-23, got: 24; hours are 0-23, a range is 9-17`,
		`timezone: Invalid value: "utc": Invalid timezone: utc; did you mean UTC?`,
	}, "\n")
	if err == nil {
		t.Fatal("Parse(...) accepts four mistakes")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("Parse(...): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(4, len(schedule.FieldErrors(err))); diff != "" {
		t.Errorf("FieldErrors(err): -want, +got:\n%s", diff)
	}
}

func TestParseEdges(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0,", schedule.MaxItemBytes)
	cases := map[string]struct {
		reason      string
		days, hours []string
		want        string // beginning of the reason; empty means no error
	}{
		"Largest":            {reason: "The bounds themselves are allowed.", hours: slices.Repeat([]string{"0," + strings.Repeat(" ", 253) + "1"}, 32)},
		"TooManyItems":       {reason: "The API refuses them too.", days: slices.Repeat([]string{"mon"}, 33), want: "Failed to parse weekdays: 33 items, at most 32"},
		"TooLong":            {reason: "It would be repeated in conditions.", hours: []string{long}, want: "Failed to parse hours: 512 bytes, at most 256"},
		"UnicodeDigit":       {reason: "A digit to Unicode is not a digit to us.", hours: []string{"\u0669"}, want: "Failed to parse hours: Invalid hour: \u0669"},
		"UnicodeDash":        {reason: "Word processors do this.", days: []string{"mon\u2013fri"}, want: "Failed to parse weekdays: Invalid day: mon\u2013fri"},
		"UnicodeSpace":       {reason: "White space is white space.", days: []string{"\u00a0mon\u2003"}},
		"NUL":                {reason: "It is no white space.", days: []string{"mon\x00"}, want: "Failed to parse weekdays: Invalid day: mon\x00"},
		"Byte":               {reason: "255 is a number but no hour.", hours: []string{"255"}, want: "Failed to parse hours: Hour must be 0-23, got: 255"},
		"RangeBeyondByte":    {reason: "What is no byte is no number.", hours: []string{"9-256"}, want: "Failed to parse hours: Invalid hour: 256"},
		"RangeKeepsItsWords": {reason: "The author must find it.", hours: []string{" 9 - 24 "}, want: "Failed to parse hours: Hours must be 0-23, got: 9 - 24"},
		"TwoSigns":           {reason: "One plus is let pass, two are a typing error.", hours: []string{"++9"}, want: "Failed to parse hours: Invalid hour: ++9"},
		"MinusZero":          {reason: "A sign is not part of an hour.", hours: []string{"-0"}, want: "Failed to parse hours: Invalid hour: -0"},
		"SignOnly":           {reason: "A number has digits.", hours: []string{"+"}, want: "Failed to parse hours: Invalid hour: +"},
		"Underscore":         {reason: "Go's own numbers are not the grammar's.", hours: []string{"1_0"}, want: "Failed to parse hours: Invalid hour: 1_0"},
		"EmptyItem":          {reason: "An empty string says neither all nor none.", hours: []string{""}, want: "Failed to parse hours: Invalid hour: "},
		"CommaOnly":          {reason: "Nor do two.", days: []string{","}, want: "Failed to parse weekdays: Invalid day: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := schedule.Parse(schedule.Spec{DaysOfWeek: tc.days, HoursOfDay: tc.hours, Timezone: "UTC"})
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s\nParse(...): %v", tc.reason, err)
				}
				return
			}
			var bad *schedule.FieldError
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Reason, tc.want) {
				t.Errorf("%s\nParse(...): %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestParseDurationEdges(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, in, want string }{
		"Plus":        {reason: "A duration has no sign.", in: "+5m", want: "Invalid duration value: +5m"},
		"Empty":       {reason: "No duration is not zero seconds.", in: " ", want: "Invalid duration: empty"},
		"UpperCase":   {reason: "M might as well be a month.", in: "5M", want: "Invalid duration unit: 'M'. Use 's', 'm', or 'h'"},
		"Wraps":       {reason: "2^64/3600 hours and a bit must not come out small.", in: "5124095576030432h", want: "Duration 5124095576030432h exceeds maximum of 86400s (24h)"},
		"UnitOnly":    {reason: "A unit needs a number.", in: "m", want: "Invalid duration value: m"},
		"InvalidUTF8": {reason: "The error must be text all the same.", in: "5\xff", want: `Invalid duration (non-ASCII): "5\xff"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := schedule.ParseDuration(tc.in)
			var bad *schedule.FieldError
			if !errors.As(err, &bad) || bad.Reason != tc.want || bad.Error() != bad.Detail() {
				t.Errorf("%s\nParseDuration(%q): %v, want %q", tc.reason, tc.in, err, tc.want)
			}
		})
	}
}
