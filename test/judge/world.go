// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"time"
)

// A departure is the departure record of a Machine.
type departure struct {
	Lane     string    `json:"lane"`
	Reason   string    `json:"reason"`
	Since    time.Time `json:"since"`
	ActionID string    `json:"actionID"`
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
	// refused is a record that the manager tried to write and the API server refused.
	refused departure
}

func (m *machine) departure() (departure, bool) {
	if m == nil {
		return departure{}, false
	}
	return departureOf(m.Annotations[departureAnnotation])
}

// scheduledMachine is the ScheduledMachine of a Machine.
func (m *machine) scheduledMachine() Object {
	return Object{m.Cluster, scheduledMachines.Group, scheduledMachines.Resource, m.Namespace, m.Labels[scheduledMachineLabel]}
}

// runs reports whether a machine has not started to leave. A Machine that another client deleted has not, while it
// waits at the hook.
func (m *machine) runs() bool {
	_, leaves := m.departure()
	return !leaves && (!m.Deleting || m.has(hooks[0]))
}

// A world is the state of Machines and ScheduledMachines according to the records so far. It drops deleted objects. The
// zero value is empty.
type world struct {
	machines  map[string]*machine
	scheduled map[Object]*State
}

// see processes a record.
func (w *world) see(r Record) {
	if w.machines == nil {
		w.machines, w.scheduled = map[string]*machine{}, map[Object]*State{}
	}
	switch {
	case r.Line != nil:
	case r.Object.isMachine():
		w.seeMachine(r)
	case r.Object.isScheduledMachine() && r.Accepted() && r.Got != nil:
		w.seeScheduled(r)
	}
}

func (w *world) seeMachine(r Record) {
	switch {
	case !r.Accepted():
		w.seeRefused(r)
	case r.Verb == "deletecollection":
		for _, m := range w.machines {
			m.Deleting = m.Deleting || m.Cluster == r.Object.Cluster && m.Namespace == r.Object.Namespace
		}
	case r.Got == nil:
	case r.Got.Gone:
		delete(w.machines, r.Got.UID)
	case w.machines[r.Got.UID] == nil:
		w.machines[r.Got.UID] = &machine{Object: r.Object, State: *r.Got}
	case r.Got.Version > w.machines[r.Got.UID].Version:
		w.machines[r.Got.UID].State = *r.Got
	}
}

// seeRefused processes a refused departure record.
func (w *world) seeRefused(r Record) {
	text, ok := r.Sent.sets(departureAnnotation)
	if m := w.machines[r.uid()]; m != nil && ok && r.ByManager() {
		m.refused, _ = departureOf(text)
	}
}

func (w *world) seeScheduled(r Record) {
	was := w.scheduled[r.Object]
	switch {
	case r.Got.Gone:
		delete(w.scheduled, r.Object)
	case was == nil, was.UID != r.Got.UID, r.Got.Version > was.Version:
		w.scheduled[r.Object] = r.Got
	}
}

// clusterOf is the Cluster of the Machine that a request is about.
func clusterOf(r Record) Object {
	return Object{r.Object.Cluster, "cluster.x-k8s.io", "clusters", r.Object.Namespace, r.Got.Labels[clusterLabel]}
}

// of returns the Machines of a Cluster that belong to ScheduledMachines.
func (w *world) of(cluster Object) (all []*machine) {
	for _, m := range w.machines {
		if m.Cluster == cluster.Cluster && m.Namespace == cluster.Namespace && m.Labels[clusterLabel] == cluster.Name && m.Labels[scheduledMachineLabel] != "" {
			all = append(all, m)
		}
	}
	return all
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
