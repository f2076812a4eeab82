// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// zoneNames lists every zone of the embedded database.
func zoneNames(t *testing.T) []string {
	t.Helper()
	files, err := database()
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(files.File))
	for _, f := range files.File {
		if f.Name != unset {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

// chooser is a source of choices: rapid, or a generator with a seed.
type chooser interface{ IntN(n int) int }

// sets is the meaning of a schedule, for oracles that must not share the parser.
type sets struct {
	days  [7]bool // by time.Weekday
	hours [24]bool
}

func (s sets) wanted(local time.Time) bool {
	return s.days[local.Weekday()] && s.hours[local.Hour()]
}

// write writes s in the grammar, in one of many ways.
func (s sets) write(r chooser) (days, hours []string) {
	week := []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	var clock []string
	for h := range 24 {
		clock = append(clock, strconv.Itoa(h))
	}
	return writeSet(s.days[:], week, r), writeSet(s.hours[:], clock, r)
}

// writeSet writes every member as itself or as the start of a range that may wrap around, so that parts overlap
// and repeat.
func writeSet(in []bool, names []string, r chooser) []string {
	var parts []string
	for i := range in {
		if !in[i] {
			continue
		}
		last := i
		for k := 1; k < len(in) && in[(i+k)%len(in)] && r.IntN(6) != 0; k++ {
			last = (i + k) % len(in)
		}
		if last == i && r.IntN(2) == 0 {
			parts = append(parts, names[i])
		} else {
			parts = append(parts, names[i]+[]string{"-", " - "}[r.IntN(2)]+names[last])
		}
	}
	cut := r.IntN(len(parts) + 1)
	return pack(slices.Concat(parts[cut:], parts[:cut]), r)
}

// pack puts parts into items within their maximum length.
func pack(parts []string, r chooser) []string {
	var items []string
	for _, p := range parts {
		n := len(items)
		if n == 0 || len(items[n-1])+len(p) > MaxItemBytes-3 || r.IntN(4) == 0 {
			items = append(items, p)
		} else {
			items[n-1] += []string{",", " , "}[r.IntN(2)] + p
		}
	}
	return items
}

// drawSets draws sparse, dense and ordinary schedules about equally often.
func drawSets(t *rapid.T) sets {
	var s sets
	one := rapid.SampledFrom([]func(int) bool{
		func(n int) bool { return n == 0 },
		func(n int) bool { return n < 4 },
		func(n int) bool { return n != 0 },
	})
	day, hour := one.Draw(t, "day density"), one.Draw(t, "hour density")
	dice := rapid.IntRange(0, 7)
	for i := range s.days {
		s.days[i] = day(dice.Draw(t, "day"))
	}
	for i := range s.hours {
		s.hours[i] = hour(dice.Draw(t, "hour"))
	}
	return s
}

// rapidDice makes rapid choose the spelling too, so that it can shrink it.
type rapidDice struct{ t *rapid.T }

func (d rapidDice) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "spelling") }

func drawSchedule(t *rapid.T, zones []string) (sets, Schedule) {
	in := drawSets(t)
	days, hours := in.write(rapidDice{t})
	zone := rapid.SampledFrom(zones).Draw(t, "zone")
	s, err := Parse(Spec{DaysOfWeek: days, HoursOfDay: hours, Timezone: zone})
	if err != nil {
		t.Fatal(err)
	}
	return in, s
}

// drawInstant prefers instants near a change of offset.
func drawInstant(t *rapid.T, zone *time.Location) time.Time {
	year := rapid.IntRange(1800, 2300).Draw(t, "year")
	at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).
		Add(time.Duration(rapid.Int64Range(0, 366*24*3600).Draw(t, "second")) * time.Second)
	if rapid.Bool().Draw(t, "near a shift") {
		if start, _ := at.In(zone).ZoneBounds(); !start.IsZero() {
			at = start.Add(time.Duration(rapid.Int64Range(-7200, 7200).Draw(t, "off")) * time.Second)
		}
	}
	return at.Add(time.Duration(rapid.Int64Range(-1, 1).Draw(t, "nanosecond")))
}

func TestAtChangesExactlyAtTheInstantItNames(t *testing.T) {
	t.Parallel()
	zones := zoneNames(t)
	rapid.Check(t, func(t *rapid.T) {
		in, s := drawSchedule(t, zones)
		at := drawInstant(t, s.Zone())

		active, change := s.At(at)
		if want := in.wanted(at.In(s.Zone())); active != want {
			t.Fatalf("At(%v): %t, want %t", at, active, want)
		}
		if change.IsZero() {
			return
		}
		if !change.After(at) {
			t.Fatalf("At(%v) changes at %v, which is not later", at, change)
		}
		if got, same := s.At(change.Add(-time.Nanosecond)); got != active || !same.Equal(change) {
			t.Fatalf("At(%v) changes before %v", at, change)
		}
		if got, _ := s.At(change); got == active {
			t.Fatalf("At(%v) does not change at %v", at, change)
		}
		between := at.Add(time.Duration(rapid.Int64Range(0, int64(change.Sub(at))-1).Draw(t, "between")))
		if got, same := s.At(between); got != active || !same.Equal(change) {
			t.Fatalf("At(%v): %t until %v, but At(%v): %t until %v", at, active, change, between, got, same)
		}
	})
}

func TestAtSaysNeverOnlyForConstantSchedules(t *testing.T) {
	t.Parallel()
	zones := zoneNames(t)
	rapid.Check(t, func(t *rapid.T) {
		in, s := drawSchedule(t, zones)
		at := drawInstant(t, s.Zone())
		none := !slices.Contains(in.days[:], true) || !slices.Contains(in.hours[:], true)
		all := !slices.Contains(in.days[:], false) && !slices.Contains(in.hours[:], false)

		if _, change := s.At(at); change.IsZero() != (none || all) {
			t.Fatalf("At(%v) changes at %v", at, change)
		}
	})
}

func TestSpellingDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawSets(t)
		days, hours := in.write(rapidDice{t})
		s, err := Parse(Spec{DaysOfWeek: days, HoursOfDay: hours, Timezone: "UTC"})
		if err != nil {
			t.Fatal(err)
		}
		monday := time.Date(2025, 1, 13, 0, 0, 0, 0, time.UTC)
		for h := range hoursPerWeek {
			at := monday.Add(time.Duration(h) * time.Hour)
			if active, _ := s.At(at); active != in.wanted(at) {
				t.Fatalf("%q %q at %v: %t", days, hours, at, active)
			}
		}
	})
}

func TestDurationsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"s", "m", "h"}).Draw(t, "unit")
		per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
		n := rapid.Int64Range(0, int64(2*maxDuration/per)).Draw(t, "number")

		d, err := ParseDuration(fmt.Sprintf(" %d%s\n", n, unit))
		want := time.Duration(n) * per
		if fits := want <= maxDuration; fits != (err == nil) || fits && d != want {
			t.Fatalf("%d%s: %v, %v", n, unit, d, err)
		}
	})
}
