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

// A target identifies a write for a machine: one verb on one object, for one kind of action.
type target struct {
	// machine is the ScheduledMachine. verb is the kind of write. kind and name identify the object.
	machine          client.ObjectKey
	verb, kind, name string
	// remote reports that the object is in the workload cluster.
	remote bool
	action audit.Kind
}

// String returns the verb, kind and name.
func (t target) String() string { return t.verb + " " + t.kind + " " + t.name }

// Verbs that RecordObserved treats specially: an absent object completes a deletion, leaves a creation open, and
// cancels any other write.
const (
	create = "create"
	remove = "delete"
)

// An intentKey distinguishes two actions on the same target.
type intentKey struct{ reason, why, trigger, uid, says string }

// is reports whether two intentions are the same. It ignores the trigger if one of them has none.
func (i intentKey) is(other intentKey) bool {
	if i.trigger == "" || other.trigger == "" {
		i.trigger, other.trigger = "", ""
	}
	return i == other
}

// tries are the open actions: the ones whose latest try failed and is retried, and the suppressed ones that
// were logged. The state may be lost: the next try then counts as the first. The zero value is ready for use.
// It is safe for concurrent use.
type tries struct {
	mu sync.Mutex
	of map[client.ObjectKey]map[target]*openAction
}

// An openAction is one intention on one target.
type openAction struct {
	id        string
	intention intentKey
	attempts  int
	// last is the audit line of the latest try.
	last audit.Line
	// shows is try.shows.
	shows func(client.Object) bool
}

// ended returns the outcome of an action as obj shows it, empty if it shows none. A departure with another
// recorded id was not carried out by this action.
func (a *openAction) ended(obj client.Object, now time.Time) audit.Outcome {
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

// begin returns the id of the next try: the id of earlier tries with the same intention, otherwise the proposed
// id, otherwise a new one. givenUp has the final line of an action that this one replaces.
func (t *tries) begin(at target, want openAction) (id string, givenUp []audit.Line) {
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

// tell returns the id of a suppressed intention. news reports whether it has not been logged.
func (t *tries) tell(at target, want openAction) (id string, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.of[at.machine][at]; a != nil && a.intention.is(want.intention) {
		return a.id, false
	}
	return t.add(at, want).id, true
}

func (t *tries) add(at target, a openAction) *openAction {
	if a.id == "" {
		a.id = string(uuid.NewUUID())
	}
	if t.of == nil {
		t.of = map[client.ObjectKey]map[target]*openAction{}
	}
	if t.of[at.machine] == nil {
		t.of[at.machine] = map[target]*openAction{}
	}
	t.of[at.machine][at] = &a
	return &a
}

// end records the result of a try that began with id, and returns the audit lines. A try whose departure has
// got another id is another action.
func (t *tries) end(at target, id string, line audit.Line) (lines []audit.Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.of[at.machine][at]
	if a == nil || a.id != id { // The action was canceled meanwhile.
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

// canceled returns the final line of an action that is not retried.
func canceled(line audit.Line) audit.Line {
	line.Outcome = audit.Canceled
	return line
}

// skip drops a try without a request, unless the action has earlier tries.
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

// take removes the open actions of a machine for which end returns an outcome. It returns their final lines.
func (t *tries) take(machine client.ObjectKey, end func(target, *openAction) audit.Outcome) []audit.Line {
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

// RecordObserved ends open actions by the observed objects of a machine, because the response to a request may have
// been lost. known reports that exists is complete.
func (a *Actuator) RecordObserved(machine client.ObjectKey, exists []client.Object, known bool, now time.Time) {
	a.closed(a.gate.tries.take(machine, func(t target, of *openAction) audit.Outcome {
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

// Forget cancels the open actions of a machine that is gone.
func (a *Actuator) Forget(machine client.ObjectKey, now time.Time) {
	a.closed(a.gate.tries.take(machine, func(target, *openAction) audit.Outcome { return audit.Canceled }), now)
}

func (a *Actuator) closed(lines []audit.Line, now time.Time) {
	for _, line := range lines {
		line.Time = now
		a.gate.tell(line)
	}
}
