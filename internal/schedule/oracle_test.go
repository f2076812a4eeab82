// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	allZones = flag.Bool("all-zones", false, "compare with the slow implementation in every zone, not in a sample")
	seed     = flag.Uint64("seed", 0, "seed of the sample; 0 takes one from the clock")
)

// These tests compare Transitions with an implementation that only reads a wall clock, at every minute or every
// second.

// dice returns a random source with a seed that reproduces a failure.
func dice(t *testing.T) *rand.Rand {
	t.Helper()
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with: -args -seed=%d -all-zones=%t", n, *allZones)
	return rand.New(rand.NewPCG(n, n))
}

// sample returns some zones, and always the zones with unusual rules.
func sample(t *testing.T, r *rand.Rand, n int) []string {
	t.Helper()
	names := zoneNames(t)
	if *allZones {
		return names
	}
	odd := []string{"Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza", "America/Nuuk", "Pacific/Chatham"}
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	return append(names[:n], odd[r.IntN(len(odd))])
}

// roll returns a random schedule and its meaning.
func roll(t *testing.T, r *rand.Rand, zone string) (sets, Schedule) {
	t.Helper()
	var in sets
	day, hour := 1+r.IntN(7), 1+r.IntN(7)
	for i := range in.days {
		in.days[i] = r.IntN(8) < day
	}
	for i := range in.hours {
		in.hours[i] = r.IntN(8) < hour
	}
	days, hours := in.write(r)
	s, err := Parse(Spec{DaysOfWeek: days, HoursOfDay: hours, Timezone: zone})
	if err != nil {
		t.Fatal(err)
	}
	return in, s
}

// clock is the readings of a wall clock over a period.
type clock struct {
	from  time.Time
	step  time.Duration
	shows []uint8 // hour of the week, from Sunday 00:00, at every step
}

func readClock(from time.Time, step time.Duration, n int, zone *time.Location) clock {
	c := clock{from: from, step: step, shows: make([]uint8, n+1)}
	for i := range c.shows {
		local := from.Add(time.Duration(i) * step).In(zone)
		c.shows[i] = uint8(int(local.Weekday())*24 + local.Hour())
	}
	return c
}

func (c clock) end() time.Time { return c.from.Add(time.Duration(len(c.shows)-1) * c.step) }

// transitions is the slow implementation.
func (c clock) transitions(in sets) []Transition {
	var list []Transition
	var wanted [7 * 24]bool
	for h := range wanted {
		wanted[h] = in.days[h/24] && in.hours[h%24]
	}
	for i := 1; i < len(c.shows); i++ {
		if now := wanted[c.shows[i]]; now != wanted[c.shows[i-1]] {
			list = append(list, Transition{At: c.from.Add(time.Duration(i) * c.step), Active: now})
		}
	}
	return list
}

func compare(t *testing.T, c clock, in sets, s Schedule) {
	t.Helper()
	want := c.transitions(in)
	got := slices.Collect(s.Transitions(c.from, c.end()))
	if i := mismatch(want, got); i >= 0 {
		t.Fatalf("%v in %v from %v: transition %d of %d (%d wanted): %v, want %v",
			s, s.Zone(), c.from, i, len(got), len(want), at(got, i), at(want, i))
	}
	if active, _ := s.At(c.from); active != in.wanted(c.from.In(s.Zone())) {
		t.Fatalf("%v in %v at %v: %t", s, s.Zone(), c.from, active)
	}
}

// mismatch returns the first index at which the lists differ, or -1.
func mismatch(a, b []Transition) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func at(list []Transition, i int) any {
	if i < len(list) {
		return list[i]
	}
	return "none"
}

// TestAgreesMinuteByMinute covers two years, now and in the far future. Since 1972 every UTC offset is a whole
// number of minutes, so no edge is between two readings.
func TestAgreesMinuteByMinute(t *testing.T) {
	t.Parallel()
	r := dice(t)
	const schedules = 8 // per zone: nearly 5000 in all zones
	for _, zone := range sample(t, r, 4) {
		year := []int{2024, 2025, 2026, 2036, 2037, 2039, 2040, 2095, 2099}[r.IntN(9)]
		from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		location, err := parseZone(zone)
		if err != nil {
			t.Fatal(err)
		}
		c := readClock(from, time.Minute, 2*366*24*60, location)
		for range schedules {
			in, s := roll(t, r, zone)
			compare(t, c, in, s)
		}
	}
}

// TestAgreesSecondBySecond covers the hours around every change of a UTC offset that is not a whole number of
// minutes, back to local mean time.
func TestAgreesSecondBySecond(t *testing.T) {
	t.Parallel()
	r := dice(t)
	seen := 0
	for _, zone := range sample(t, r, 24) {
		location, err := parseZone(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, shift := range oddShifts(location) {
			seen++
			c := readClock(shift.Add(-2*time.Hour), time.Second, 4*3600, location)
			for range 8 {
				in, s := roll(t, r, zone)
				compare(t, c, in, s)
			}
		}
	}
	t.Logf("%d changes of offset", seen)
	if seen == 0 {
		t.Error("no zone of the sample ever had an offset with seconds; most of them have")
	}
}

// oddShifts lists the changes of offset that are not whole minutes.
func oddShifts(zone *time.Location) []time.Time {
	var list []time.Time
	for at := time.Date(1980, 1, 1, 0, 0, 0, 0, zone); ; {
		start, _ := at.ZoneBounds()
		if start.IsZero() {
			return list
		}
		before := start.Add(-time.Second)
		_, a := before.Zone()
		_, b := start.Zone()
		if a%60 != 0 || b%60 != 0 {
			list = append(list, start.UTC())
		}
		at = before
	}
}
