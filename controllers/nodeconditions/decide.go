// SPDX-License-Identifier: Apache-2.0

package nodeconditions

import (
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// A condition is what one says; the zero value is one that is not there.
type condition struct{ Status, Reason, Message string }

const (
	yes = "True"
	no  = "False"
)

// ours reports whether nobody else wrote it: Kubernetes lets everybody write these conditions.
func (c condition) ours() bool {
	switch c.Reason {
	case v1alpha1.NodeWindowClosesReason, v1alpha1.NodeLeavesReason, v1alpha1.NodeDrainedReason:
		return true
	default:
		return false
	}
}

// facts are everything that a decision depends on.
type facts struct {
	// Now is the time.
	Now time.Time
	// Name is that of the ScheduledMachine, for people.
	Name string
	// Ends is when its window closes, zero if it never does; if Due, when the next one opens.
	Ends time.Time
	// Lead is how long before that it is announced; zero is not at all.
	Lead time.Duration
	// Due says that the window is closed, or that nobody knows: what was said of its end stays.
	Due bool
	// Urgent says that nobody waits for the machine: its Node is left as it is.
	Urgent bool
	// Why is why the machine leaves, empty if no departure was admitted.
	Why string
	// Drained says that Cluster API's drain of the Node has ended.
	Drained bool
	// Has are the conditions of the Node.
	Has map[string]condition
}

// A decision says what to do.
type decision struct {
	// Set are the conditions to be written. One that is the zero value is taken off.
	Set map[string]condition
	// Again is when time alone changes the decision, zero if it never does.
	Again time.Time
}

// decide says what the Node is to say of its departure.
func decide(f facts) decision {
	d := decision{Set: map[string]condition{}}
	if f.Urgent {
		return d
	}
	announce := f.Ends.Add(-f.Lead)
	switch {
	case f.Lead == 0:
		d.off(f, v1alpha1.MaintenancePlannedCondition)
	case f.Why != "": // What was announced happens.
	case f.Due: // It is about to happen, unless the machine waits for its turn until the next window.
		d.Again = f.Ends
	case f.Ends.IsZero():
		d.off(f, v1alpha1.MaintenancePlannedCondition)
	case f.Now.Before(announce):
		d.off(f, v1alpha1.MaintenancePlannedCondition)
		d.Again = announce
	default:
		message := fmt.Sprintf("The window of ScheduledMachine %s closes at %s", f.Name, f.Ends.UTC().Format(time.RFC3339))
		d.say(f, v1alpha1.MaintenancePlannedCondition, condition{yes, v1alpha1.NodeWindowClosesReason, message})
	}
	leaves := fmt.Sprintf("ScheduledMachine %s leaves: %s", f.Name, f.Why)
	switch {
	case f.Why == "":
		d.off(f, v1alpha1.DrainInProgressCondition)
		d.off(f, v1alpha1.DrainedCondition)
	case f.Drained:
		if has := f.Has[v1alpha1.DrainInProgressCondition]; has.ours() {
			d.say(f, v1alpha1.DrainInProgressCondition, condition{no, v1alpha1.NodeDrainedReason, leaves})
		}
		d.say(f, v1alpha1.DrainedCondition, condition{yes, v1alpha1.NodeDrainedReason, leaves})
	default:
		d.say(f, v1alpha1.DrainInProgressCondition, condition{yes, v1alpha1.NodeLeavesReason, leaves})
		d.off(f, v1alpha1.DrainedCondition)
	}
	return d
}

// say has a condition be as wanted, unless somebody else says the same.
func (d decision) say(f facts, kind string, want condition) {
	if has := f.Has[kind]; has != want && (has.ours() || has.Status != want.Status) {
		d.Set[kind] = want
	}
}

// off takes a condition of ours off.
func (d decision) off(f facts, kind string) {
	if f.Has[kind].ours() {
		d.Set[kind] = condition{}
	}
}
