// SPDX-License-Identifier: Apache-2.0

package judge

import "time"

// Settled is the rule that the manager writes nothing but its lease in a quiet fleet, between two instants.
func Settled(from, to time.Time) Rule { return settled{Silence{From: from, To: to}} }

type settled struct{ time Silence }

func (settled) Name() string     { return "settled" }
func (settled) Question() string { return "Is nothing written to a fleet that is settled?" }
func (settled) End() []Verdict   { return nil }

func (s settled) Judge(r Record) []Verdict {
	switch {
	case !r.ByManager() || !s.time.holds(r.At) || r.isReview():
		return nil
	case r.isLease():
		return kept(r)
	default:
		return broken(r, "the manager sent "+r.Verb+" "+r.Object.Resource+" "+r.Subresource, "nothing had happened, so nothing should have been written")
	}
}
