// SPDX-License-Identifier: Apache-2.0

// Package schedule evaluates the schedule of a machine: whether the machine is wanted at an instant, and when
// that changes next. It is pure, imports no Kubernetes package, and has its own time zone database.
package schedule

import (
	"errors"
	"iter"
	"strings"
	"time"
)

const (
	hoursPerDay  = 24
	daysPerWeek  = 7
	hoursPerWeek = daysPerWeek * hoursPerDay
	everyDay     = 1<<daysPerWeek - 1
	everyHour    = 1<<hoursPerDay - 1
)

// horizon is the end of the search for a change. Neither RFC 3339 nor the Kubernetes API can represent a later
// instant.
var horizon = time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Spec is a schedule as its author wrote it.
type Spec struct {
	// DaysOfWeek has comma-separated lists of days and ranges of days, such as "mon-fri".
	DaysOfWeek []string

	// HoursOfDay has comma-separated lists of hours and ranges of hours, such as "9-17", which lasts from
	// 09:00:00 to 17:59:59.
	HoursOfDay []string

	// Timezone is the IANA name of the time zone. It has no default.
	Timezone string
}

// Schedule is a set of weekdays and a set of hours of the day in one time zone. A machine is wanted while the
// local weekday and the local hour are both in their set. Schedules are equal (==) if they were parsed from the
// same text, apart from white space and the split into list items. The zero value is never active.
type Schedule struct {
	days  uint32 // bit 0 is Monday
	hours uint32 // bit 0 is midnight
	zone  *time.Location
	words string
}

// Parse parses spec and reports all errors. The error joins one *FieldError per invalid field or list item.
// Empty lists are valid: such a schedule is never active.
func Parse(spec Spec) (Schedule, error) {
	days, dayErr := dayGrammar.parse(spec.DaysOfWeek)
	hours, hourErr := hourGrammar.parse(spec.HoursOfDay)
	zone, zoneErr := parseZone(spec.Timezone)
	if err := errors.Join(dayErr, hourErr, zoneErr); err != nil {
		return Schedule{}, err
	}
	return Schedule{days: days, hours: hours, zone: zone, words: join(spec.DaysOfWeek) + " " + join(spec.HoursOfDay)}, nil
}

// At reports whether a machine is wanted at t. change is the next instant at which that changes, in UTC, zero
// if it never does.
func (s Schedule) At(t time.Time) (active bool, change time.Time) {
	active = s.wanted(t)
	if s.constant() {
		return active, time.Time{}
	}
	// Each iteration handles one period of constant UTC offset. A week with a constant offset has both states,
	// so the loop ends with the first such week.
	for t.Before(horizon) {
		end := s.offsetEnd(t)
		flip := s.flip(t)
		if end.IsZero() || flip.Before(end) {
			return active, known(flip)
		}
		if s.wanted(end) != active {
			return active, known(end)
		}
		t = end
	}
	return active, time.Time{}
}

// known returns zero for an instant after the horizon.
func known(change time.Time) time.Time {
	if change.Before(horizon) {
		return change
	}
	return time.Time{}
}

// Transition is an instant at which a machine becomes wanted or unwanted.
type Transition struct {
	At     time.Time // in UTC
	Active bool
}

// Transitions yields every change after from, up to and including to, in order. For the state at from, see
// [Schedule.At].
func (s Schedule) Transitions(from, to time.Time) iter.Seq[Transition] {
	return func(yield func(Transition) bool) {
		active, change := s.At(from)
		for !change.IsZero() && !change.After(to) {
			if !yield(Transition{At: change, Active: !active}) {
				return
			}
			active, change = s.At(change)
		}
	}
}

// Zone returns the time zone of the schedule. For the zero value it is UTC.
func (s Schedule) Zone() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone
}

// String returns the author's text without white space, such as "mon-fri 9-17", or "never" if there are no days
// or no hours.
func (s Schedule) String() string {
	if s.days == 0 || s.hours == 0 {
		return "never"
	}
	return s.words
}

// constant reports whether the result is the same at all times.
func (s Schedule) constant() bool {
	return s.days == 0 || s.hours == 0 || s.days == everyDay && s.hours == everyHour
}

// wanted reports whether a machine is wanted at t.
func (s Schedule) wanted(t time.Time) bool {
	return s.wantedHour(hourOfWeek(t.In(s.Zone())))
}

// wantedHour is wanted for an hour of the week, counted from Monday 00:00.
func (s Schedule) wantedHour(h int) bool {
	return s.days>>(h/hoursPerDay)&1 == 1 && s.hours>>(h%hoursPerDay)&1 == 1
}

// flip returns the first instant after t at which the result would change if the UTC offset at t lasted
// forever. The schedule must not be constant.
func (s Schedule) flip(t time.Time) time.Time {
	local := t.In(s.Zone())
	now := hourOfWeek(local)
	n := 1
	for n < hoursPerWeek && s.wantedHour((now+n)%hoursPerWeek) == s.wantedHour(now) {
		n++
	}
	intoHour := local.Minute()*60 + local.Second()
	return time.Unix(t.Unix()+int64(n*3600-intoHour), 0).UTC()
}

// offsetEnd returns an instant after t, in UTC, until which the UTC offset at t is valid. Zero means forever.
// The offset may stay the same at that instant.
func (s Schedule) offsetEnd(t time.Time) time.Time {
	_, end := t.In(s.Zone()).ZoneBounds()
	if end.IsZero() || end.After(t) {
		return end.UTC()
	}
	// After the last entry of the database (2037), package time computes offsets by a rule with years of 365
	// days. On 31 December of a leap year it returns an end in the past. That offset is valid until midnight
	// UTC.
	year, month, day := t.UTC().Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
}

// hourOfWeek returns the hours since Monday 00:00, local time.
func hourOfWeek(local time.Time) int {
	monday0 := (int(local.Weekday()) + daysPerWeek - 1) % daysPerWeek
	return monday0*hoursPerDay + local.Hour()
}

// join returns a list on one line without white space, because it is part of a condition message.
func join(items []string) string {
	return strings.Join(strings.Fields(strings.Join(items, ",")), "")
}
