// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"slices"
	"time"
)

// A departure is the departure record of a Machine.
type departure struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// departureOf parses a departure record. ok is false for an invalid one.
func departureOf(text string) (d departure, ok bool) {
	err := json.Unmarshal([]byte(text), &d)
	return d, err == nil && d.Reason != "" && !d.Since.IsZero()
}

func (d departure) urgent() bool { return d.Reason == killed || d.Reason == reclaimed }

// A machine is an existing Machine of Cluster API.
type machine struct {
	Object
	State
	// cluster and parent are its Cluster and its ScheduledMachine, as first seen. Later edits of labels change neither.
	// The parent of a Machine that 5-Spot did not make has no name.
	cluster, parent Object
	// ran reports that the Machine has had a Node. started reports that its departure has started.
	ran, started bool
	// refused is a record that the manager tried to write, and that the API server refused or did not answer. See
	// setRefused.
	refused departure
}

func (m *machine) departure() (departure, bool) {
	if m == nil {
		return departure{}, false
	}
	return departureOf(m.Annotations[departureAnnotation])
}

// runs reports whether a machine has not started to leave. A Machine that another client deleted has not, while it
// waits at the hook.
func (m *machine) runs() bool { return !m.started && !m.free() }

// learn updates what later states do not change.
func (m *machine) learn(s State) {
	if m.parent.Name == "" {
		m.parent = Object{m.Cluster, scheduledMachines.Group, scheduledMachines.Resource, m.Namespace, s.Labels[scheduledMachineLabel]}
	}
	if m.cluster.Name == "" {
		m.cluster = clusterOf(m.Object, s)
	}
	m.ran = m.ran || s.HasNode
}

// clusterOf is the Cluster of a Machine.
func clusterOf(o Object, s State) Object {
	name := s.ClusterName
	if name == "" {
		name = s.Labels[clusterLabel]
	}
	return Object{o.Cluster, clusters.Group, clusters.Resource, o.Namespace, name}
}

// A scheduledMachine is an existing ScheduledMachine.
type scheduledMachine struct {
	State
	// announced is when the log first showed NextCleanup for ObservedGeneration. If it was there before the log
	// begins, it is NextCleanupAnnouncedTime.
	announced time.Time
}

// A world is the state of Machines and ScheduledMachines according to the records so far. It drops deleted objects. The
// zero value is empty.
type world struct {
	machines  map[string]*machine
	scheduled map[Object]*scheduledMachine
	// urgent has the ScheduledMachines and Clusters whose departures are exempt. The value is until when; zero means
	// that this has no end yet.
	urgent map[Object]time.Time
}

// see processes a record. It returns the start of a departure that the record shows, nil if it shows none.
func (w *world) see(r Record) *start {
	if w.machines == nil {
		w.machines, w.scheduled, w.urgent = map[string]*machine{}, map[Object]*scheduledMachine{}, map[Object]time.Time{}
	}
	switch {
	case r.Line != nil:
		w.seeFailed(r.Line)
	case !r.Accepted():
		w.seeRefused(r)
	case r.Object.isCluster():
		w.seeCluster(r)
	case r.Object.isMachine() && r.Verb == "deletecollection":
		for _, m := range w.machines {
			m.Deleting = m.Deleting || m.Cluster == r.Object.Cluster && m.Namespace == r.Object.Namespace
		}
	case r.Object.isMachine() && r.Got != nil:
		return w.seeMachine(r)
	case r.Object.isScheduledMachine() && r.Got != nil:
		w.seeScheduled(r)
	case r.Object.isHost() && r.done("delete"):
		return w.hostDeleted(r)
	}
	return nil
}

func (w *world) seeMachine(r Record) *start {
	m := w.machines[r.Got.UID]
	var before State
	switch {
	case m == nil:
		m = &machine{Object: r.Object, State: *r.Got}
		w.machines[r.Got.UID] = m
	case r.Got.Version > m.Version:
		before, m.State = m.State, *r.Got
	default:
		before = m.State
	}
	m.learn(*r.Got)
	if r.Got.Gone {
		delete(w.machines, r.Got.UID)
	}
	return w.started(r, m, before)
}

// seeRefused processes a refused departure record.
func (w *world) seeRefused(r Record) {
	text, ok := r.Sent.sets(departureAnnotation)
	if m := w.machines[r.uid()]; r.Object.isMachine() && m != nil && ok && r.ByManager() {
		d, _ := departureOf(text)
		m.setRefused(d)
	}
}

// seeFailed processes a line about a write of a Machine that failed. A request without an answer may not be in the API
// server's log, or without its content.
func (w *world) seeFailed(l *Line) {
	if m := w.machines[l.UID]; m != nil && l.Outcome == "api_error" {
		m.setRefused(departure{Reason: l.Reason})
	}
}

// setRefused sets refused, unless it is an urgent record: the planner may try to write another one after it.
func (m *machine) setRefused(d departure) {
	if !m.refused.urgent() {
		m.refused = d
	}
}

func (w *world) seeScheduled(r Record) {
	was := w.scheduled[r.Object]
	if was != nil && was.UID == r.Got.UID && !r.Got.Gone && r.Got.Version <= was.Version {
		return
	}
	w.setUrgent(r.Object, !r.Got.Gone && r.Got.urgent(), r.At)
	if r.Got.Gone {
		delete(w.scheduled, r.Object)
		return
	}
	now := &scheduledMachine{State: *r.Got, announced: r.At}
	switch known := was != nil && was.UID == r.Got.UID; {
	case known && was.NextCleanup.Equal(now.NextCleanup) && was.ObservedGeneration == now.ObservedGeneration:
		now.announced = was.announced
	case !known && (r.Sent == nil || !slices.Contains(r.Sent.Changes, "status/nextCleanup")):
		now.announced = now.NextCleanupAnnouncedTime
	}
	w.scheduled[r.Object] = now
}

func (w *world) seeCluster(r Record) {
	switch {
	case r.Verb == "deletecollection":
		for _, m := range w.machines {
			if m.cluster.Cluster == r.Object.Cluster && m.cluster.Namespace == r.Object.Namespace {
				w.setUrgent(m.cluster, true, r.At)
			}
		}
	case r.Got != nil:
		w.setUrgent(r.Object, r.Got.Deleting && !r.Got.Gone, r.At)
	case r.Verb == "delete" && r.Subresource == "":
		w.setUrgent(r.Object, true, r.At)
	}
}

// machine returns the last known state of the Machine that a request is about, nil if unknown. The result does not
// change with later records.
func (w *world) machine(r Record) *machine {
	m := w.machines[r.uid()]
	if m == nil {
		return nil
	}
	known := *m
	return &known
}

// ofPart returns the Machine whose bootstrap config or infrastructure machine a request is about, nil if there is none.
func (w *world) ofPart(r Record) *machine {
	if r.Got != nil && w.machines[r.Got.Owner] != nil {
		return w.machines[r.Got.Owner]
	}
	for _, m := range w.machines {
		if m.Cluster == r.Object.Cluster && m.Namespace == r.Object.Namespace && slices.Contains(m.Parts, Part{r.Object.Group, r.Object.Name}) {
			return m
		}
	}
	return nil
}

// ranOnce reports whether a machine has had a Node, by its status or by the status of its ScheduledMachine, of which
// one can be lost.
func (w *world) ranOnce(m *machine) bool {
	sm := w.scheduled[m.parent]
	return m.ran || sm != nil && sm.HasNode
}
