// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"
)

// The lanes of a departure.
const (
	// scheduled is for the end of a window that the status announced in time.
	scheduled = "scheduled"
	// exempt is for kill switches, owners' requests, Clusters that are being deleted, and departures that another
	// client started.
	exempt = "exempt"
	// unscheduled is for all others.
	unscheduled = "unscheduled"
)

const (
	// notice is how long before its end a window must have been announced.
	notice = 10 * time.Minute
	// skew bounds the difference between the clocks of manager and API server.
	skew = time.Minute
	// stale bounds how late the manager observes that a departure is no longer exempt.
	stale = 10 * time.Second
)

// A start is the moment at which Cluster API may begin to drain a machine that 5-Spot made: its Machine is being
// deleted and has no pre-drain hook of 5-Spot. A deletion by the manager counts at once, also if the hook still waits
// for an extension. If the infrastructure is deleted before, that is the start. Departure records do not matter.
type start struct {
	machine *machine
	at      time.Time
	id      string
	lane    string
}

// started returns the start of the departure of m that a request for it shows, nil if it shows none. before is the
// state before the request, as far as known. A request that only shows an earlier change is no start.
func (w *world) started(r Record, m *machine, before State) *start {
	var starts bool
	// Requests can overlap. A state with a later version shows the effect of this request.
	switch known := before.Version <= r.Got.Version; {
	case m.parent.Name == "", m.started, known && before.free():
	case r.Got.Gone:
		starts = true
	case r.Verb == "delete":
		starts = r.Got.free() || r.ByManager() && !before.Deleting
	default:
		starts = r.Got.free() && removesHook(r, before)
	}
	if !starts {
		return nil
	}
	m.started = true
	return &start{m, r.At, r.ID, w.lane(r, m)}
}

// removesHook reports whether a request removes the pre-drain hook. The manager may do so by an update or an apply
// without it.
func removesHook(r Record, before State) bool {
	return r.Sent.takesOff(hooks[0]) || r.ByManager() && before.has(hooks[0]) && !r.Got.has(hooks[0])
}

// hostDeleted returns the start of a departure by the deletion of its infrastructure machine, nil if it had started
// before. The manager must not delete the infrastructure of a machine that runs. A deletion by another client is not a
// start: the manager did not decide it, and 5-Spot counts the machine until it deletes the Machine.
func (w *world) hostDeleted(r Record) *start {
	m := w.ofPart(r)
	if m == nil || m.parent.Name == "" || !m.runs() {
		return nil
	}
	m.started = true
	return &start{m, r.At, r.ID, w.lane(r, m)}
}

// lane returns the lane of a departure that a request starts. Only a deletion of the Machine by the manager can be for
// the end of a window.
func (w *world) lane(r Record, m *machine) string {
	switch sm := w.scheduled[m.parent]; {
	case !r.ByManager(), w.isUrgent(m.parent, r.At), w.isUrgent(m.cluster, r.At):
		return exempt
	case r.Object.isMachine() && r.Verb == "delete" && sm != nil && sm.windowEnded(r.At):
		return scheduled
	default:
		return unscheduled
	}
}

// windowEnded reports whether the window that the status names is over, and the status announced its end in time for
// this spec. The judge does not evaluate schedules. The log has to show the announcement.
func (s *scheduledMachine) windowEnded(at time.Time) bool {
	end := s.NextCleanup
	return !s.Deleting && s.Generation == s.ObservedGeneration && !end.After(at.Add(skew)) &&
		!s.NextCleanupAnnouncedTime.IsZero() && !s.NextCleanupAnnouncedTime.After(end.Add(-notice)) && !s.announced.After(end.Add(skew-notice))
}

// urgent reports whether a kill switch or an owner removes the machine of a ScheduledMachine. A machine that was
// created after its owner's request had been served leaves, too.
func (s *State) urgent() bool {
	return s.KillSwitch || s.has(emergencyAnnotation) || s.has(reclaimedAnnotation) && s.Disabled
}

func (w *world) setUrgent(o Object, on bool, at time.Time) {
	until, was := w.urgent[o]
	switch {
	case on:
		w.urgent[o] = time.Time{}
	case was && until.IsZero():
		w.urgent[o] = at.Add(stale)
	}
}

func (w *world) isUrgent(o Object, at time.Time) bool {
	until, was := w.urgent[o]
	return was && (until.IsZero() || at.Before(until))
}

// within returns the starts less than a period before an instant.
func within(starts []start, at time.Time, period time.Duration) []start {
	return slices.DeleteFunc(slices.Clone(starts), func(s start) bool { return at.Sub(s.at) >= period })
}
