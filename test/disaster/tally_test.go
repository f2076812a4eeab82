// SPDX-License-Identifier: Apache-2.0

package disaster

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// A tally measures, from the API servers' audit logs, when machines started to leave, and how long owners waited. It is
// a judge.Rule that reports no breaks.
type tally struct {
	// starts are the times at which departures began, without exempt ones.
	starts []time.Time
	// requests are the times of owners' requests, by Node. freed are the times of deletions of infrastructure machines,
	// by name.
	requests, freed map[string][]time.Time
	// noted are the times of the manager's first write to the ScheduledMachine after an owner's request, by its name.
	// deleted are the times at which the manager deleted a Machine, by the Machine's name.
	noted, deleted map[string][]time.Time
	// writes are the manager's writes that an owner waits for, by the name of the object.
	writes map[string][]judge.Record
	seen   map[string]bool
}

func newTally() *tally {
	return &tally{
		requests: map[string][]time.Time{}, freed: map[string][]time.Time{}, noted: map[string][]time.Time{}, deleted: map[string][]time.Time{},
		writes: map[string][]judge.Record{}, seen: map[string]bool{},
	}
}

func (*tally) Name() string         { return "tally" }
func (*tally) Question() string     { return "When did machines leave, and how long did owners wait?" }
func (*tally) End() []judge.Verdict { return nil }

func (t *tally) Judge(r judge.Record) []judge.Verdict {
	if !r.Accepted() {
		return nil
	}
	if r.ByManager() && r.Subresource == "" {
		t.writes[r.Object.Name] = append(t.writes[r.Object.Name], r)
	}
	switch r.Object.Resource {
	case "machines":
		t.start(r)
		if r.Verb == "delete" && r.ByManager() {
			t.deleted[r.Object.Name] = append(t.deleted[r.Object.Name], r.At)
		}
	case "scheduledmachines":
		if r.Sent != nil && r.Sent.Annotations[v1alpha1.EmergencyReclaimAnnotation] != nil && r.ByManager() {
			t.noted[r.Object.Name] = append(t.noted[r.Object.Name], r.At)
		}
	case "nodes":
		if r.Sent != nil && r.Sent.Annotations[reclaim.RequestedAnnotation] != nil && !r.ByManager() {
			t.requests[r.Object.Name] = append(t.requests[r.Object.Name], r.At)
		}
	case "planemachines":
		if r.Verb == "delete" {
			t.freed[r.Object.Name] = append(t.freed[r.Object.Name], r.At)
		}
	}
	return nil
}

// start records each departure once.
func (t *tally) start(r judge.Record) {
	if r.Sent == nil || r.Sent.Annotations[v1alpha1.DepartureAnnotation] == nil {
		return
	}
	var d struct{ Lane, ActionID, Since string }
	if json.Unmarshal([]byte(*r.Sent.Annotations[v1alpha1.DepartureAnnotation]), &d) != nil || d.Since == "" || d.Lane == "exempt" || t.seen[d.ActionID] {
		return
	}
	t.seen[d.ActionID] = true
	t.starts = append(t.starts, r.At)
}

// most returns how many started to leave between two instants, and the maximum in any 10 s.
func (t *tally) most(from, to time.Time) (all, most int) {
	var recent []time.Time
	for _, at := range t.starts { // sorted
		if at.Before(from) || at.After(to) {
			continue
		}
		recent = append(slices.DeleteFunc(recent, func(other time.Time) bool { return at.Sub(other) >= 10*time.Second }), at)
		all, most = all+1, max(most, len(recent))
	}
	return all, most
}

// A wait is the time of an owner from the request to the deletion of the infrastructure machine.
type wait struct {
	all time.Duration
	// ours is the wait without the time that the API server and its webhooks spent on the writes.
	ours time.Duration
}

// waited returns the wait for one request.
func (t *tally) waited(a request) (wait, error) {
	for _, requested := range t.requests[a.node] {
		if requested.Before(a.at.Add(-time.Second)) {
			continue
		}
		for _, freed := range t.freed[a.machine+"-infra"] {
			if freed.After(requested) {
				all := freed.Sub(requested)
				return wait{all: all, ours: all - t.served(a, requested, freed)}, nil
			}
		}
	}
	return wait{}, fmt.Errorf("nobody has recorded that the machine of %s was given back", a.machine)
}

// served sums the time that the API server spent on the writes for an owner, which are sequential.
func (t *tally) served(a request, from, to time.Time) (sum time.Duration) {
	for _, name := range []string{a.machine, a.machine + "-machine"} {
		for _, r := range t.writes[name] {
			if end := r.At.Add(r.Took); !r.At.Before(from) && !end.After(to) {
				sum += r.Took
			}
		}
	}
	return sum
}

// steps lists how long after the request each step was.
func (t *tally) steps(a request) (text string) {
	for _, requested := range t.requests[a.node] {
		if requested.Before(a.at.Add(-time.Second)) {
			continue
		}
		for _, step := range []struct {
			name string
			all  []time.Time
		}{{"noted", t.noted[a.machine]}, {"Machine deleted", t.deleted[a.machine+"-machine"]}, {"infrastructure deleted", t.freed[a.machine+"-infra"]}} {
			if i := slices.IndexFunc(step.all, requested.Before); i >= 0 {
				text += fmt.Sprintf(" %s %v", step.name, step.all[i].Sub(requested).Round(time.Millisecond))
			}
		}
		break
	}
	return text
}

// A request is a request of an owner.
type request struct {
	machine, node string
	at            time.Time
	// peer is how long five requests of another client took at the same time.
	peer time.Duration
}

// peers returns the peer times of requests.
func peers(requests []request) (took []time.Duration) {
	for _, a := range requests {
		took = append(took, a.peer)
	}
	return took
}

// spread holds the median and the maximum of some durations.
type spread struct {
	n                 int
	median, p99, most time.Duration
}

func spreadOf(all []time.Duration) (s spread) {
	if s.n = len(all); s.n == 0 {
		return s
	}
	slices.Sort(all)
	s.median, s.p99, s.most = all[s.n/2], all[(s.n*99+99)/100-1], all[s.n-1]
	return s
}

func (s spread) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%d, median %v, p99 %v, longest %v", s.n, round(s.median), round(s.p99), round(s.most))
}
