// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// declared fails the test unless err is nil or consists of *FieldErrors with printable text.
func declared(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	bad := FieldErrors(err)
	if len(bad) == 0 {
		t.Fatalf("%#v is not made of *FieldErrors", err)
	}
	for _, e := range bad {
		if e.Reason == "" || e.Help == "" || len(e.Error()) > 4096 {
			t.Fatalf("%q has no reason or help, or is too long", e.Error())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"mon-fri\x009-17\x00UTC", "sun-sat\x0022-6\x00Asia/Kolkata", "-mon\x00-5-3\x00Local", "mon--fri\x00--\x00../x",
		" mon , tue \x00+9 - 17\x00Etc/GMT+5", "m\u00f6n\x00\u0669\x00", ",\x00,\x00/", strings.Repeat("mon,", 99) + "\x0099999\x00UTC",
	} {
		parts := strings.SplitN(s, "\x00", 3)
		f.Add(parts[0], parts[1], parts[2], int64(1736899200))
	}
	f.Add("mon", "9", "America/New_York", int64(math.MaxInt64))
	f.Add("mon", "9", "America/New_York", int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, days, hours, zone string, sec int64) {
		s, err := Parse(Spec{DaysOfWeek: []string{days}, HoursOfDay: []string{hours}, Timezone: zone})
		declared(t, err)
		if err != nil {
			if s != (Schedule{}) {
				t.Fatal("an error came with a schedule")
			}
			return
		}
		if text := s.String(); !utf8.ValidString(text) || strings.ContainsAny(text, "\n\t\x00") {
			t.Fatalf("%q is not one line of text", text)
		}
		s.At(time.Unix(sec, 0)) // It must end for every instant.
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"5m", " 0s ", "24h", "25h", "+5m", "-5m", "5", "", "5\u0660", "\x00", "9999999999999999999h", "1h30m", "0x5m", "1_0m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		declared(t, err)
		if d < 0 || d > maxDuration || d%time.Second != 0 || err != nil && d != 0 {
			t.Fatalf("ParseDuration(%q): %v", s, d)
		}
	})
}
