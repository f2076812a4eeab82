// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// A target is what is written for a machine: one object, in one way, for one kind of action.
type target struct {
	// machine is the ScheduledMachine, verb what is done, and kind and name the object.
	machine          client.ObjectKey
	verb, kind, name string
	// remote says that the object is in the workload cluster.
	remote bool
	action audit.Kind
}

// String says what is written.
func (t target) String() string { return t.verb + " " + t.kind + " " + t.name }

// The verbs of targets whose end the absence of their object says.
const (
	create = "create"
	remove = "delete"
)

// An intention tells one action about a target from another.
type intention struct{ reason, why, trigger, uid, says string }

// is reports whether two intentions are the same, as far as whoever has them knows the trigger.
func (i intention) is(other intention) bool {
	if i.trigger == "" || other.trigger == "" {
		i.trigger, other.trigger = "", ""
	}
	return i == other
}

// tries are the actions that are under way: those whose last try was no success, and those
// that were told of and suppressed. It may be lost: the next try then counts from one. The
// zero value is ready for use, and it is safe for concurrent use.
type tries struct {
	mu sync.Mutex
	of map[client.ObjectKey]map[target]*action
}

// An action is one intention about one target.
type action struct {
	id        string
	intention intention
	attempts  int
	// last is the line of the last try.
	last audit.Line
	// shows is that of a try.
	shows func(client.Object) bool
}

// ended is what one look at the object of an action says of its end, empty if nothing. A departure
// that has another on record was not carried out by this action.
func (a *action) ended(obj client.Object, now time.Time) audit.Outcome {
	if a.shows == nil || !a.shows(obj) {
		return ""
	}
	if m, ok := obj.(*clusterv1.Machine); ok && a.last.Lane != "" {
		id, _, _ := strings.Cut(a.last.ActionID, "/")
		if d, _ := children.DepartureOf(m, now); d.ActionID != "" && d.ActionID != id {
			return audit.Canceled
		}
	}
	return audit.Success
}

// begin returns the id of the next try: that of the tries before it, if they were for the
// same intention, else the proposed one, else a new one. It returns the last line of an
// action that is given up for it.
func (t *tries) begin(at target, want action) (id string, givenUp []audit.Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[at.machine][at]
	if a != nil && a.intention == want.intention {
		return a.id, nil
	}
	if a != nil && a.attempts > 0 {
		givenUp = append(givenUp, canceled(a.last))
	}
	return t.add(at, want).id, givenUp
}

// tell returns the id of an intention that is suppressed, and whether it is news.
func (t *tries) tell(at target, want action) (id string, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.of[at.machine][at]; a != nil && a.intention.is(want.intention) {
		return a.id, false
	}
	return t.add(at, want).id, true
}

func (t *tries) add(at target, a action) *action {
	if a.id == "" {
		a.id = string(uuid.NewUUID())
	}
	if t.of == nil {
		t.of = map[client.ObjectKey]map[target]*action{}
	}
	if t.of[at.machine] == nil {
		t.of[at.machine] = map[target]*action{}
	}
	t.of[at.machine][at] = &a
	return &a
}

// end notes the end of a try that began with id, and returns what is told of it. A try whose
// departure has got another id is another action.
func (t *tries) end(at target, id string, line audit.Line) (lines []audit.Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[at.machine][at]
	if a == nil || a.id != id { // It was given up meanwhile.
		line.Attempt = 1
		if lines = append(lines, line); !line.Outcome.Final() {
			lines = append(lines, canceled(line))
		}
		return lines
	}
	if a.attempts > 0 && a.last.ActionID != line.ActionID {
		lines = append(lines, canceled(a.last))
		a.attempts = 0
	}
	a.attempts++
	line.Attempt = a.attempts
	a.last = line
	if line.Outcome.Final() {
		t.drop(at)
	}
	return append(lines, line)
}

// canceled is the last line of an action that is not tried again.
func canceled(line audit.Line) audit.Line {
	line.Outcome = audit.Canceled
	return line
}

// skip forgets a try for which nothing had to be sent, unless an earlier one is open.
func (t *tries) skip(at target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.of[at.machine][at]; a != nil && a.attempts == 0 {
		t.drop(at)
	}
}

func (t *tries) drop(at target) {
	delete(t.of[at.machine], at)
	if len(t.of[at.machine]) == 0 {
		delete(t.of, at.machine)
	}
}

// take takes out the actions of a machine that are open and have an end, and returns their last
// lines. The end of one that has none is empty.
func (t *tries) take(machine client.ObjectKey, end func(target, *action) audit.Outcome) []audit.Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []audit.Line
	for at, a := range t.of[machine] {
		outcome := end(at, a)
		if outcome == "" {
			continue
		}
		if a.attempts > 0 {
			line := a.last
			line.Outcome = outcome
			lines = append(lines, line)
		}
		t.drop(at)
	}
	return lines
}

// Seen notes what there is of a machine, so that an action whose answer was never heard has
// an end. known says that nothing else exists of it.
func (a *Actuator) Seen(machine client.ObjectKey, exists []client.Object, known bool, now time.Time) {
	a.closed(a.gate.tries.take(machine, func(t target, of *action) audit.Outcome {
		if t.remote {
			return ""
		}
		for _, obj := range exists {
			if kind(obj) == t.kind && obj.GetName() == t.name {
				return of.ended(obj, now)
			}
		}
		switch {
		case !known, t.verb == create:
			return ""
		case t.verb == remove:
			return audit.Success
		default:
			return audit.Canceled
		}
	}), now)
}

// Forget notes that a machine is gone: what was tried last for it has no end.
func (a *Actuator) Forget(machine client.ObjectKey, now time.Time) {
	a.closed(a.gate.tries.take(machine, func(target, *action) audit.Outcome { return audit.Canceled }), now)
}

func (a *Actuator) closed(lines []audit.Line, now time.Time) {
	for _, line := range lines {
		line.Time = now
		a.gate.tell(line)
	}
}
