// SPDX-License-Identifier: Apache-2.0

package judge

// Emergency is the rule about the order of an emergency reclaim. The request is written to the ScheduledMachine before
// the Machine is deleted for it. Once the Machine is gone, one request turns the schedule off and removes the owner's
// request. The Node's request is removed last. The rule Steps covers the infrastructure. The API servers of all logs
// must have the same clock.
func Emergency() Rule { return &emergency{} }

type emergency struct{ world world }

func (*emergency) Name() string { return "emergency" }
func (*emergency) Question() string {
	return "Is an owner's request remembered until the Machine is gone and the schedule is off?"
}

func (*emergency) End() []Verdict { return nil }

func (e *emergency) Judge(r Record) []Verdict {
	before := e.world.machine(r)
	var remembered bool
	if was := e.world.scheduled[r.Object]; was != nil {
		remembered = was.has(emergencyAnnotation)
	}
	e.world.see(r)
	switch {
	case r.Object.isMachine() && r.done("delete"):
		return e.ejected(r, before)
	case r.Object.isScheduledMachine() && r.done("patch", "update") && !r.creates():
		return e.ended(r, remembered)
	case r.Object.isNode() && r.done("patch", "update") && r.Sent.takesOff(requestAnnotation):
		return e.cleared(r)
	default:
		return nil
	}
}

// ejected judges the deletion of a Machine for its owner.
func (e *emergency) ejected(r Record, before *machine) []Verdict {
	d, _ := before.departure()
	if r.Got != nil && d.Reason == "" {
		d, _ = departureOf(r.Got.Annotations[departureAnnotation])
	}
	m := e.world.machine(r)
	if m == nil {
		m = before
	}
	if d.Reason != reclaimed || m == nil {
		return nil
	}
	sm := e.world.scheduled[m.parent]
	if sm == nil {
		return nil // The Machine is unknown.
	}
	// The creator of the Machine may not have observed the reclaim yet.
	if !sm.has(emergencyAnnotation) && !sm.has(reclaimedAnnotation) {
		return broken(r, "the Machine was deleted for its owner, and the ScheduledMachine had no request", "the request should have been written down first")
	}
	return kept(r)
}

// ended judges the end of a recorded request.
func (e *emergency) ended(r Record, remembered bool) []Verdict {
	off := r.Sent != nil && r.Sent.Enabled != nil && !*r.Sent.Enabled
	forgotten := r.Sent.takesOff(emergencyAnnotation) && remembered
	if r.Got == nil || !off && !forgotten {
		return nil
	}
	switch {
	case off && (r.Got.has(emergencyAnnotation) || !r.Got.has(reclaimedAnnotation)):
		return broken(r, "the schedule was turned off and the owner's request is not shown as served", "one request should have done both")
	case forgotten && !off && !r.Got.Disabled && !e.any(r.Object, func(m *machine) bool { _, ok := m.Labels[controlPlaneLabel]; return ok }):
		return broken(r, "the owner's request was forgotten and the schedule left on", "one request should have done both")
	case forgotten && off && e.any(r.Object, func(*machine) bool { return true }):
		return broken(r, "the owner's request ended while the Machine was still there", "the manager should have waited until it is gone")
	default:
		return kept(r)
	}
}

func (e *emergency) any(sm Object, is func(*machine) bool) bool {
	for _, m := range e.world.machines {
		if m.parent == sm && is(m) {
			return true
		}
	}
	return false
}

// cleared judges the removal of the request from a Node.
func (e *emergency) cleared(r Record) []Verdict {
	if r.Got == nil || r.Got.Annotations[nodeOwnerKindAnnotation] != scheduledMachineKind {
		return nil
	}
	for sm, state := range e.world.scheduled {
		ofNode := sm.Namespace == r.Got.Annotations[nodeNamespaceAnnotation] && sm.Name == r.Got.Annotations[nodeOwnerNameAnnotation]
		if ofNode && state.has(emergencyAnnotation) {
			return broken(r, "the request was taken off the Node while it was being served", "the schedule should have been turned off first")
		}
	}
	return kept(r)
}
