// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
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

// The verbs of targets that one look at a machine can say the end of.
const (
	create = "create"
	remove = "delete"
)

// tries are the actions that are under way: those whose last try was no success, and those
// that were told of and suppressed. It may be lost: the next try then counts from one. The
// zero value is ready for use, and it is safe for concurrent use.
type tries struct {
	mu sync.Mutex
	of map[client.ObjectKey]map[target]*action
}

// An action is one intention about one target.
type action struct {
	id, intention string
	attempts      int
	// last is the line of the last try.
	last audit.Line
}

// begin returns the id of the next try: that of the tries before it, if they were for the
// same intention, else the proposed one, else a new one. It returns the last line of an
// action that is given up for it.
func (t *tries) begin(at target, intention, proposed string) (id string, givenUp []audit.Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[at.machine][at]
	if a != nil && a.intention == intention {
		return a.id, nil
	}
	if a != nil && a.attempts > 0 {
		givenUp = append(givenUp, a.last)
	}
	return t.add(at, intention, proposed).id, givenUp
}

// tell returns the id of an intention that is suppressed, and whether it is news.
func (t *tries) tell(at target, intention, proposed string) (id string, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.of[at.machine][at]; a != nil && a.intention == intention {
		return a.id, false
	}
	return t.add(at, intention, proposed).id, true
}

func (t *tries) add(at target, intention, id string) *action {
	if id == "" {
		id = string(uuid.NewUUID())
	}
	a := &action{id: id, intention: intention}
	if t.of == nil {
		t.of = map[client.ObjectKey]map[target]*action{}
	}
	if t.of[at.machine] == nil {
		t.of[at.machine] = map[target]*action{}
	}
	t.of[at.machine][at] = a
	return a
}

// end notes the end of a try that began with id, and returns which it was.
func (t *tries) end(at target, id string, line audit.Line) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[at.machine][at]
	if a == nil || a.id != id {
		return 1 // Its machine was forgotten meanwhile.
	}
	a.attempts++
	a.last = line
	a.last.Attempt = a.attempts
	if line.Outcome.Final() {
		t.drop(at)
	}
	return a.attempts
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

// take takes out the actions of a machine that are open, where done says so, and returns
// their last lines.
func (t *tries) take(machine client.ObjectKey, done func(target) bool) []audit.Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []audit.Line
	for at, a := range t.of[machine] {
		if done(at) {
			if a.attempts > 0 {
				lines = append(lines, a.last)
			}
			t.drop(at)
		}
	}
	return lines
}

// Seen notes what there is of a machine, so that an action whose answer was never heard has
// an end. known says that nothing else exists of it.
func (a *Actuator) Seen(machine client.ObjectKey, exists []client.Object, known bool, now time.Time) {
	lines := a.gate.tries.take(machine, func(t target) bool {
		if t.remote {
			return false
		}
		for _, obj := range exists {
			if kind(obj) == t.kind && obj.GetName() == t.name {
				return t.verb == create || t.verb == remove && !obj.GetDeletionTimestamp().IsZero()
			}
		}
		return t.verb == remove && known
	})
	a.closed(lines, audit.Success, now)
}

// Forget notes that a machine is gone: what was tried last for it has no end.
func (a *Actuator) Forget(machine client.ObjectKey, now time.Time) {
	a.closed(a.gate.tries.take(machine, func(target) bool { return true }), audit.Canceled, now)
}

func (a *Actuator) closed(lines []audit.Line, outcome audit.Outcome, now time.Time) {
	for _, line := range lines {
		line.Time, line.Outcome = now, outcome
		a.gate.tell(line)
	}
}
