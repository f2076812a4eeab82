// SPDX-License-Identifier: Apache-2.0

// Package plan computes when the schedules of machines open and close within a period. It imports no Kubernetes
// package, and reads no clock and no objects: the caller passes both.
package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

// Longest bounds the length of a plan. In a year a schedule has at most 8784 transitions.
const Longest = 366 * 24 * time.Hour

// Machine is the part of a ScheduledMachine that a plan needs.
type Machine struct {
	Name       string
	Schedule   schedule.Spec
	Enabled    bool
	KillSwitch bool
	// Paused means that no controller acts on the machine, whatever its schedule.
	Paused bool
}

// Plan is the state of a schedule at one instant, and its transitions after that. Its JSON is an API.
type Plan struct {
	Name        string       `json:"name"`
	Timezone    string       `json:"timezone"`
	At          time.Time    `json:"at"` // in UTC
	Active      bool         `json:"active"`
	Transitions []Transition `json:"transitions"` // never nil

	schedule schedule.Schedule
	disabled bool
	until    time.Time
	notes    []string
}

// Transition is an instant at which a window opens or closes.
type Transition struct {
	At     time.Time `json:"at"` // in UTC
	Active bool      `json:"active"`
	Local  string    `json:"local"`
}

// New plans for length, at most [Longest], from at on. It returns the error of [schedule.Parse]. A disabled schedule
// has no transitions, and may be invalid.
func New(m Machine, at time.Time, length time.Duration) (Plan, error) {
	p := Plan{
		Name:        m.Name,
		Timezone:    m.Schedule.Timezone,
		At:          at.UTC(),
		Transitions: []Transition{},
		until:       at.Add(length).UTC(),
	}
	if m.KillSwitch {
		p.notes = append(p.notes, "the kill switch is on: no machine runs in any window")
	}
	if m.Paused {
		p.notes = append(p.notes, "it is paused: nothing is done in any window")
	}
	s, err := schedule.Parse(m.Schedule)
	p.schedule = s
	if !m.Enabled {
		p.disabled = true
		for _, bad := range schedule.FieldErrors(err) {
			p.notes = append(p.notes, "the API would refuse it: spec.schedule."+bad.Error())
		}
		return p, nil
	}
	if err != nil {
		return Plan{}, err
	}
	p.Active, _ = s.At(at)
	for t := range s.Transitions(at, p.until) {
		p.Transitions = append(p.Transitions, Transition{At: t.At, Active: t.Active, Local: Local(t.At, s.Zone())})
	}
	return p, nil
}

// Local formats an instant in a time zone: weekday, date, time, zone.
func Local(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("Mon 2006-01-02 15:04:05 MST")
}

// Text returns plans as text for people.
func Text(plans []Plan) string {
	var b strings.Builder
	for i := range plans {
		if i > 0 {
			b.WriteString("\n")
		}
		plans[i].text(&b)
	}
	return b.String()
}

func (p *Plan) text(b *strings.Builder) {
	zone := p.schedule.Zone()
	fmt.Fprintf(b, "%s: %s, %s\n", p.Name, p.schedule, p.Timezone)
	fmt.Fprintf(b, "  %s  %s\n", Local(p.At, zone), p.state())
	for _, t := range p.Transitions {
		fmt.Fprintf(b, "  %s  %s\n", t.Local, map[bool]string{true: "opens", false: "closes"}[t.Active])
	}
	if len(p.Transitions) == 0 && !p.disabled {
		fmt.Fprintf(b, "  %s  no change until then\n", Local(p.until, zone))
	}
	for _, note := range p.notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
}

func (p *Plan) state() string {
	switch {
	case p.disabled:
		return "disabled: nothing is started, and an existing machine stays"
	case p.Active:
		return "inside the window"
	default:
		return "outside the window"
	}
}
