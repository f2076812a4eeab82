// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"slices"
)

// Steps is the rule about the order of a departure. The departure record is written before 5-Spot removes one of its
// deletion hooks, and before the Machine is deleted. The Machine is deleted before its infrastructure. If Cluster API's
// webhooks refuse the record of an urgent departure, or do not answer, an attempt to write it is sufficient.
func Steps() Rule { return &steps{} }

type steps struct {
	world world
	// unrecorded has the verdict on each Machine that was deleted without a record, by UID.
	unrecorded map[string]Verdict
}

func (*steps) Name() string { return "steps" }
func (*steps) Question() string {
	return "Is it on record why a machine leaves before anything is taken away from it, and does its infrastructure go last?"
}

// End returns the verdicts on deletions without a record for which no manager logged a failed attempt to write one.
func (s *steps) End() (verdicts []Verdict) {
	for _, uid := range slices.Sorted(maps.Keys(s.unrecorded)) {
		verdicts = append(verdicts, s.unrecorded[uid])
	}
	return verdicts
}

func (s *steps) Judge(r Record) []Verdict {
	before := s.world.machine(r)
	s.world.see(r)
	switch {
	case r.Line != nil:
		return s.attempted(r)
	case r.Object.isMachine() && r.done("delete"):
		return s.deletion(r, before)
	case r.Object.isMachine() && r.done("patch", "update"):
		return hookTakenOff(r, before)
	case r.Object.ofProvider() && r.done("delete"):
		return s.judgePart(r)
	default:
		return nil
	}
}

// deletion judges the deletion of a Machine.
func (s *steps) deletion(r Record, before *machine) []Verdict {
	_, recorded := before.departure()
	if r.Got != nil && !recorded {
		_, recorded = departureOf(r.Got.Annotations[departureAnnotation])
	}
	switch {
	case recorded, before != nil && before.refused.urgent():
		return kept(r)
	case before == nil && (r.Got == nil || r.Got.Annotations == nil):
		return nil // The Machine is unknown.
	default:
		if s.unrecorded == nil {
			s.unrecorded = map[string]Verdict{}
		}
		s.unrecorded[r.uid()] = broken(r, "the Machine was deleted without a record of its departure", "the manager should have written the record first")[0]
		return nil
	}
}

// attempted judges a deletion without a record by the first line about an urgent departure of the Machine. If that write
// got no answer, the manager tried to write the record first. The API server's log may lack that request.
func (s *steps) attempted(r Record) []Verdict {
	v, unrecorded := s.unrecorded[r.Line.UID]
	answered, failed := r.Line.Outcome == "success", r.Line.Outcome == "api_error"
	if !unrecorded || !answered && !failed || !(departure{Reason: r.Line.Reason}).urgent() {
		return nil
	}
	delete(s.unrecorded, r.Line.UID)
	if failed {
		return kept(r)
	}
	return []Verdict{v}
}

func hookTakenOff(r Record, before *machine) []Verdict {
	taken := false
	for _, hook := range hooks {
		had := before != nil && before.has(hook)
		taken = taken || r.Sent.takesOff(hook) || had && r.Got != nil && !r.Got.has(hook)
	}
	if !taken || r.Got == nil {
		return nil
	}
	if _, recorded := departureOf(r.Got.Annotations[departureAnnotation]); !recorded && !r.Got.Gone {
		return broken(r, "a deletion hook was taken off a Machine that has no record of a departure", "the record should have been there, or in the same request")
	}
	return kept(r)
}

// judgePart judges the deletion of objects that a Machine owns.
func (s *steps) judgePart(r Record) []Verdict {
	m := s.world.ofPart(r)
	if m == nil && (r.Got == nil || r.Got.Owner == "") {
		return nil
	}
	if m != nil && !m.Deleting {
		return broken(r, "it was deleted before its Machine "+m.Name, "the Machine should have been deleted first")
	}
	return kept(r)
}
