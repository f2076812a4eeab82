// SPDX-License-Identifier: Apache-2.0

// Package schedule answers one question: is a machine wanted at instant t, and
// when does that answer next change? It knows nothing about Kubernetes.
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

// horizon ends the search for a change: neither RFC 3339 nor the Kubernetes API
// can write a later instant.
var horizon = time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Spec is a schedule in its author's words.
type Spec struct {
	// DaysOfWeek holds comma lists of days and ranges of days, such as "mon-fri".
	DaysOfWeek []string

	// HoursOfDay holds comma lists of hours and ranges of hours, such as "9-17",
	// which lasts from 09:00:00 to 17:59:59.
	HoursOfDay []string

	// Timezone is the IANA name of the zone of both. It has no default.
	Timezone string
}

// Schedule is a set of weekdays and a set of hours of the day in one zone. A
// machine is wanted while the local weekday and the local hour are both in
// their set. Schedules are equal (==) if they were parsed from the same words;
// the zero value is never active.
type Schedule struct {
	days  uint32 // bit 0 is Monday
	hours uint32 // bit 0 is midnight
	zone  *time.Location
	words string
}

// Parse reads the whole of spec and reports every problem at once: its error
// joins one *FieldError per bad field or list item. Empty lists are no problem;
// such a schedule is never active.
func Parse(spec Spec) (Schedule, error) {
	days, dayErr := dayGrammar.parse(spec.DaysOfWeek)
	hours, hourErr := hourGrammar.parse(spec.HoursOfDay)
	zone, zoneErr := parseZone(spec.Timezone)
	if err := errors.Join(dayErr, hourErr, zoneErr); err != nil {
		return Schedule{}, err
	}
	return Schedule{days: days, hours: hours, zone: zone, words: words(spec)}, nil
}

// At reports whether a machine is wanted at t, and the first later instant, in
// UTC, at which that changes. A zero change means never.
func (s Schedule) At(t time.Time) (active bool, change time.Time) {
	active = s.wanted(t)
	if s.constant() {
		return active, time.Time{}
	}
	// Every round handles one period of constant offset. A week without a change
	// of offset holds both answers, so the loop ends with the first such week.
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

// known replaces an instant that nobody can write by never.
func known(change time.Time) time.Time {
	if change.Before(horizon) {
		return change
	}
	return time.Time{}
}

// Transition is an instant at which the answer changes, and the answer from then on.
type Transition struct {
	At     time.Time // in UTC
	Active bool
}

// Transitions yields, in order, every change after from up to and including to.
// What holds at from itself is the business of [Schedule.At].
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

// Zone returns the zone in which the schedule is read. That of the zero value is UTC.
func (s Schedule) Zone() *time.Location {
	if s.zone == nil {
		return time.UTC
	}
	return s.zone
}

// String returns the author's own words without white space, such as "mon-fri 9-17",
// or "never" if there are no days or no hours.
func (s Schedule) String() string {
	if s.days == 0 || s.hours == 0 {
		return "never"
	}
	return s.words
}

// constant reports whether the answer is the same at all times.
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

// flip returns the first instant after t at which the answer would change if
// the offset of t lasted forever. The schedule must not be constant.
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

// offsetEnd returns an instant after t, in UTC, before which the offset of t
// holds; zero means forever. The offset may go on unchanged at that instant.
func (s Schedule) offsetEnd(t time.Time) time.Time {
	_, end := t.In(s.Zone()).ZoneBounds()
	if end.IsZero() || end.After(t) {
		return end.UTC()
	}
	// Where the database leaves off and a rule takes over (2037), package time
	// takes every year to have 365 days, so on 31 December of a leap year the end
	// it gives is past. That offset lasts until midnight UTC.
	year, month, day := t.UTC().Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
}

// hourOfWeek counts local hours from Monday 00:00.
func hourOfWeek(local time.Time) int {
	monday0 := (int(local.Weekday()) + daysPerWeek - 1) % daysPerWeek
	return monday0*hoursPerDay + local.Hour()
}

// words repeats spec on one line. White space is dropped, because a condition
// has the result in the middle of its message.
func words(spec Spec) string {
	return join(spec.DaysOfWeek) + " " + join(spec.HoursOfDay)
}

func join(items []string) string {
	return strings.Join(strings.Fields(strings.Join(items, ",")), "")
}
