// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// A condition has the fields of a Node condition that matter here. The zero value means that it is absent.
type condition struct{ Status, Reason, Message string }

const (
	yes = "True"
	no  = "False"
)

// ours reports whether this package wrote the condition, by its reason. Other programs may write the same types.
func (c condition) ours() bool {
	switch c.Reason {
	case v1alpha1.NodeWindowClosingReason, v1alpha1.NodeDepartingReason, v1alpha1.NodeDrainedReason:
		return true
	default:
		return false
	}
}

// departureFacts is the state that the decision about departure conditions depends on.
type departureFacts struct {
	// Now is the time.
	Now time.Time
	// Name identifies the ScheduledMachine in messages.
	Name string
	// WindowChanges is when its window closes, zero if it never does. If Due is true, it is when the next window opens.
	WindowChanges time.Time
	// Lead is how long before WindowChanges the end is announced; zero disables the announcement.
	Lead time.Duration
	// Due reports that the window is closed or its end unknown. An earlier announcement stays then.
	Due bool
	// Urgent reports that the machine leaves without waiting for others: its Node does not change.
	Urgent bool
	// Why is the departure reason, empty if no departure was admitted.
	Why string
	// Drained reports that Cluster API has drained the Node.
	Drained bool
	// Has are the departure conditions of the Node.
	Has map[string]condition
}

// A departureDecision has the departure conditions to write.
type departureDecision struct {
	// Set has the conditions to write, by type. The zero value removes a condition.
	Set map[string]condition
	// Again is when time alone changes the decision, zero if it never does.
	Again time.Time
}

// decideDeparture returns the changes of the Node's departure conditions.
func decideDeparture(f departureFacts) departureDecision {
	d := departureDecision{Set: map[string]condition{}}
	if f.Urgent {
		return d
	}
	announce := f.WindowChanges.Add(-f.Lead)
	switch {
	case f.Lead == 0:
		d.off(f, v1alpha1.MaintenancePlannedCondition)
	case f.Why != "": // The announced departure happens.
	case f.Due: // The departure is imminent, or deferred until at most the next window.
		d.Again = f.WindowChanges
	case f.WindowChanges.IsZero():
		d.off(f, v1alpha1.MaintenancePlannedCondition)
	case f.Now.Before(announce):
		d.off(f, v1alpha1.MaintenancePlannedCondition)
		d.Again = announce
	default:
		message := fmt.Sprintf("The window of ScheduledMachine %s closes at %s", f.Name, f.WindowChanges.UTC().Format(time.RFC3339))
		d.set(f, v1alpha1.MaintenancePlannedCondition, condition{yes, v1alpha1.NodeWindowClosingReason, message})
	}
	leaves := fmt.Sprintf("ScheduledMachine %s leaves: %s", f.Name, f.Why)
	switch {
	case f.Why == "":
		d.off(f, v1alpha1.DrainInProgressCondition)
		d.off(f, v1alpha1.DrainedCondition)
	case f.Drained:
		if has := f.Has[v1alpha1.DrainInProgressCondition]; has.ours() {
			d.set(f, v1alpha1.DrainInProgressCondition, condition{no, v1alpha1.NodeDrainedReason, leaves})
		}
		d.set(f, v1alpha1.DrainedCondition, condition{yes, v1alpha1.NodeDrainedReason, leaves})
	default:
		d.set(f, v1alpha1.DrainInProgressCondition, condition{yes, v1alpha1.NodeDepartingReason, leaves})
		d.off(f, v1alpha1.DrainedCondition)
	}
	return d
}

// set sets a condition, unless another writer has set it with the same status.
func (d departureDecision) set(f departureFacts, kind string, want condition) {
	if has := f.Has[kind]; has != want && (has.ours() || has.Status != want.Status) {
		d.Set[kind] = want
	}
}

// off removes a condition that this package wrote.
func (d departureDecision) off(f departureFacts, kind string) {
	if f.Has[kind].ours() {
		d.Set[kind] = condition{}
	}
}
