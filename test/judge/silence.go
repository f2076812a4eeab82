// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"
)

// A Silence is a period in which all managers were paused, or ran in shadow mode.
type Silence struct {
	// From and To are its ends. A request that arrived at one of them is inside.
	From, To time.Time
	// Shadow reports that not even status may be written.
	Shadow bool
}

func (s Silence) holds(at time.Time) bool { return !at.Before(s.From) && !at.After(s.To) }

// Quiet is the rule that the manager changes nothing while it is paused or in shadow mode, except its lease and Events.
// Under a pause it also writes the status of ScheduledMachines, but not their phase. A refused request counts as a
// break, because it should not have been sent.
func Quiet(silences ...Silence) Rule { return quiet{silences} }

type quiet struct{ silences []Silence }

func (quiet) Name() string { return "silence" }
func (quiet) Question() string {
	return "Is nothing written while actuation is paused, or in shadow mode?"
}

func (quiet) End() []Verdict { return nil }

func (q quiet) Judge(r Record) []Verdict {
	for _, s := range q.silences {
		if r.ByManager() && s.holds(r.At) {
			return s.judge(r)
		}
	}
	return nil
}

func (s Silence) judge(r Record) []Verdict {
	switch {
	case r.isLease(), r.isEvent(), r.isReview():
		return kept(r)
	case s.Shadow:
		return broken(r, "a manager in shadow mode sent "+r.Verb, "it should only keep its lease and send Events")
	case !r.Object.isScheduledMachine() || r.Subresource != "status" || r.Verb != "patch":
		return broken(r, "a paused manager sent "+r.Verb, "it should only write status of ScheduledMachines")
	case r.Sent == nil:
		return unread(r)
	case slices.Contains(r.Sent.Changes, "status/phase"):
		return broken(r, "a paused manager wrote a phase", "the phase should have stayed as it was")
	default:
		return kept(r)
	}
}

func (r Record) isLease() bool {
	return r.Object.Group == "coordination.k8s.io" && r.Object.Resource == "leases"
}

func (r Record) isEvent() bool { return r.Object.Resource == "events" }
