// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
)

// clusterRails is the output of rails for one Cluster. Its JSON is an API.
type clusterRails struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Total is the number of its ScheduledMachines.
	Total int `json:"total"`
	// Machines are the machines that a rail holds, and the ones that leave.
	Machines []railsRow `json:"machines"`
	// LeavingUnknown reports that Machines could not be read: more machines may be leaving.
	LeavingUnknown bool `json:"leavingUnknown,omitempty"`
	// LeaveAfterPause are the names of paused machines that leave once the pause ends.
	LeaveAfterPause []string `json:"leaveAfterPause,omitempty"`
	// LeavesNext is the first capped machine in the planner's order, empty if there is none.
	LeavesNext string `json:"leavesNext,omitempty"`
	// Next is the next window to close, nil if there is none.
	Next *closing `json:"next,omitempty"`
	// Warnings has a sentence if no manager seems to serve the Cluster.
	Warnings []string `json:"warnings,omitempty"`

	candidates []departurecap.Candidate
	unserved   []*v1alpha1.ScheduledMachine
}

// railsRow is a machine that a rail holds, or that leaves.
type railsRow struct {
	Name  string     `json:"name"`
	State railsState `json:"state"`
	// Reason and Message are copied from the condition that holds the machine, or from its departure record.
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
	// Machine, Lane and ActionID are set if the departure has begun.
	Machine  string                 `json:"machine,omitempty"`
	Lane     v1alpha1.DepartureLane `json:"lane,omitempty"`
	ActionID string                 `json:"actionID,omitempty"`
	// GraceEnded is when the budget of a late departure ended, nil if the departure is not late.
	GraceEnded *metav1.Time `json:"graceEnded,omitempty"`
}

// closing is the end of a window.
type closing struct {
	Name string      `json:"name"`
	At   metav1.Time `json:"at"`

	zone *time.Location
}

// railsState is the effect of the rails on a machine.
type railsState string

const (
	railPaused  railsState = "paused"  // suspended by the manager or by Cluster API's pause
	railHeld    railsState = "held"    // a gate is closed
	railCapped  railsState = "capped"  // others leave first
	railLeaving railsState = "leaving" // the departure has begun
)

// railsStates are all states, in display order.
var railsStates = []railsState{railPaused, railHeld, railCapped, railLeaving}

// railsOf builds the view of every Cluster from conditions and departure records. It runs no planner.
// machinesRead is false if the Machines could not be listed.
func railsOf(objects []v1alpha1.ScheduledMachine, machines []metav1.PartialObjectMetadata, machinesRead bool, now time.Time) []clusterRails {
	departing := map[client.ObjectKey]railsRow{}
	clusters := map[client.ObjectKey]*clusterRails{}
	of := func(namespace, name string) *clusterRails {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		if clusters[key] == nil {
			clusters[key] = &clusterRails{Namespace: namespace, Cluster: name, Machines: []railsRow{}, LeavingUnknown: !machinesRead}
		}
		return clusters[key]
	}
	owners := map[client.ObjectKey]*v1alpha1.ScheduledMachine{}
	for i := range objects {
		owners[client.ObjectKeyFromObject(&objects[i])] = &objects[i]
	}
	for i := range machines {
		m := &machines[i]
		d, ok := departureOf(m)
		switch key := (client.ObjectKey{Namespace: m.Namespace, Name: d.Name}); {
		case !ok:
		case orphaned(m, owners[key]):
			c := of(m.Namespace, m.Labels[clusterv1.ClusterNameLabel])
			c.Machines = append(c.Machines, orphanRow(m, d))
		default:
			departing[key] = d
		}
	}
	for i := range objects {
		m := &objects[i]
		c := of(m.Namespace, m.Spec.ClusterName)
		c.Total++
		if unserved(m, now) {
			c.unserved = append(c.unserved, m)
		}
		departure, leaving := departing[client.ObjectKeyFromObject(m)]
		switch row, held := heldRow(m); {
		case held:
			row.Machine, row.Lane, row.ActionID = departure.Machine, departure.Lane, departure.ActionID
			c.candidates = append(c.candidates, candidateOf(m))
			c.Machines = append(c.Machines, row)
			if row.State == railPaused && shouldLeave(m, now) {
				c.LeaveAfterPause = append(c.LeaveAfterPause, m.Name)
			}
		case leaving:
			departure.setGraceEnded(m, now)
			c.Machines = append(c.Machines, departure)
		default:
			c.setNext(m, now)
		}
	}
	return sorted(clusters, now)
}

// heldRow returns why a machine is held, and false if it is not.
func heldRow(m *v1alpha1.ScheduledMachine) (railsRow, bool) {
	row := railsRow{Name: m.Name}
	c := gateOf(m)
	switch {
	case paused(m):
		row.State, row.Reason, row.Message = railPaused, clusterv1.PausedReason, pausedWhy
		if c := withStatus(m, clusterv1.PausedCondition, metav1.ConditionTrue); c != nil {
			row.Message, row.Since = cmp.Or(c.Message, pausedWhy), &c.LastTransitionTime
		}
		return row, true
	case suppressed(m) != nil:
		row.State, c = railPaused, suppressed(m)
	case c == nil:
		return railsRow{}, false
	case c.Reason == v1alpha1.BlastRadiusCapReason:
		row.State = railCapped
	default:
		row.State = railHeld
	}
	row.Reason, row.Message, row.Since = c.Reason, c.Message, &c.LastTransitionTime
	return row, true
}

// shouldLeave reports whether a machine that is in its Cluster would leave now. The status of a paused machine does not
// follow the clock, so this evaluates the spec.
func shouldLeave(m *v1alpha1.ScheduledMachine, now time.Time) bool {
	return m.Status.MachineRef != nil &&
		(!m.DeletionTimestamp.IsZero() || m.Spec.KillSwitch || m.BeingReclaimed() || machineschedule.Resolve(m, now).Closed())
}

// departureOf returns why a Machine leaves, and false if it does not leave.
func departureOf(m *metav1.PartialObjectMetadata) (railsRow, bool) {
	row := railsRow{Name: m.Labels[v1alpha1.ScheduledMachineLabel], State: railLeaving, Machine: m.Name}
	d, ok := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	if ok && !d.Since.IsZero() {
		row.Reason, row.Lane, row.ActionID, row.Since = string(d.Reason), d.Lane, d.ActionID, &d.Since
		return row, true
	}
	row.Since, row.Message = m.DeletionTimestamp, "its Machine is being deleted, and its departure is not admitted yet"
	return row, !m.DeletionTimestamp.IsZero()
}

// orphaned reports whether sm is not the ScheduledMachine that created the Machine. A nil sm means that none has its
// name.
func orphaned(m *metav1.PartialObjectMetadata, sm *v1alpha1.ScheduledMachine) bool {
	ref := metav1.GetControllerOf(m)
	return sm == nil || ref != nil && ref.UID != sm.UID
}

// orphanRow returns a departure under the name of the Machine itself, because it has no ScheduledMachine. Without an
// admission, a Machine with 5-Spot's pre-drain hook is held.
func orphanRow(m *metav1.PartialObjectMetadata, d railsRow) railsRow {
	d.Name = m.Name
	if metav1.HasAnnotation(m.ObjectMeta, v1alpha1.PreDrainHookAnnotation) && d.Reason == "" {
		d.State, d.Message = railHeld, "its Machine is being deleted without its ScheduledMachine, and waits for its turn"
		if r, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation]); r.Waiting != nil {
			d.Message = r.Waiting.Message
		}
	}
	return d
}

// setGraceEnded sets GraceEnded if a departure of m has exceeded its budget by unservedAfter.
func (r *railsRow) setGraceEnded(m *v1alpha1.ScheduledMachine, now time.Time) {
	if d := m.Status.Departure; d != nil && d.DeadlineTime != nil && now.Sub(d.DeadlineTime.Time) >= unservedAfter {
		r.GraceEnded = d.DeadlineTime
	}
}

// setNext records m's window as Next if it closes before the present one.
func (c *clusterRails) setNext(m *v1alpha1.ScheduledMachine, now time.Time) {
	at := m.Status.NextCleanup
	if at == nil || !at.After(now) || m.Status.MachineRef == nil || idle(m) != "" {
		return
	}
	if c.Next == nil || at.Before(&c.Next.At) {
		c.Next = &closing{Name: m.Name, At: *at, zone: machineschedule.Resolve(m, now).Schedule.Zone()}
	}
}

func sorted(clusters map[client.ObjectKey]*clusterRails, now time.Time) []clusterRails {
	views := make([]clusterRails, 0, len(clusters))
	for _, c := range clusters {
		c.order(now)
		c.reportUnserved(now)
		views = append(views, *c)
	}
	slices.SortFunc(views, func(a, b clusterRails) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster))
	})
	return views
}

// order sorts the machines by state. It sorts capped machines as the planner does, and the others by time.
func (c *clusterRails) order(now time.Time) {
	place := map[string]int{}
	for i, waits := range departurecap.InOrder(c.candidates, now) {
		place[waits.Name] = i
	}
	slices.SortFunc(c.Machines, func(a, b railsRow) int {
		if by := cmp.Compare(slices.Index(railsStates, a.State), slices.Index(railsStates, b.State)); by != 0 {
			return by
		}
		if a.State == railCapped {
			return cmp.Compare(place[c.Namespace+"/"+a.Name], place[c.Namespace+"/"+b.Name])
		}
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.Name, b.Name))
	})
	if first := slices.IndexFunc(c.Machines, func(r railsRow) bool { return r.State == railCapped }); first >= 0 {
		c.LeavesNext = c.Machines[first].Name
	}
}

// reportUnserved reports the machine that has waited longest for a manager.
func (c *clusterRails) reportUnserved(now time.Time) {
	if len(c.unserved) == 0 {
		return
	}
	longest := slices.MinFunc(c.unserved, func(a, b *v1alpha1.ScheduledMachine) int {
		return cmp.Or(waitingSince(a, now).Compare(waitingSince(b, now)), cmp.Compare(a.Name, b.Name))
	})
	subject := longest.Name
	if others := len(c.unserved) - 1; others > 0 {
		subject += fmt.Sprintf(" and %d more", others)
	}
	c.Warnings = []string{unservedNote(subject, longest, now)}
}

func (r *railsRow) since() time.Time { return ptr.Deref(r.Since, metav1.Time{}).Time }
