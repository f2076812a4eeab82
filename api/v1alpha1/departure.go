// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DepartureLane is how far a departure has to wait for others.
//
// +kubebuilder:object:generate=false
type DepartureLane string

// The lanes of a departure.
const (
	// ScheduledLane is for the end of a window.
	ScheduledLane DepartureLane = "scheduled"
	// UnscheduledLane is for every other departure that nobody needs at once.
	UnscheduledLane DepartureLane = "unscheduled"
	// ExemptLane is for those that wait for nobody.
	ExemptLane DepartureLane = "exempt"
)

// DepartureReason is why a machine leaves.
//
// +kubebuilder:object:generate=false
type DepartureReason string

// The reasons of a departure.
const (
	// WindowClosed means that the schedule does not want the machine any more.
	WindowClosed DepartureReason = "WindowClosed"
	// ScheduledMachineDeleted means that the object is being deleted.
	ScheduledMachineDeleted DepartureReason = "Deleted"
	// MachineReplaced means that the Machine cannot live on, and is made anew.
	MachineReplaced DepartureReason = "Replaced"
	// ClusterDeleted means that the Cluster is being deleted.
	ClusterDeleted DepartureReason = "ClusterDeleted"
	// KilledByPerson means that the kill switch is on.
	KilledByPerson DepartureReason = "KillSwitch"
	// ReclaimedByOwner means that the owner needs the machine.
	ReclaimedByOwner DepartureReason = "EmergencyReclaim"
	// DeletedByOthers means that somebody else deletes the Machine.
	DeletedByOthers DepartureReason = "External"
)

// Lane is the lane of a departure for this reason.
func (r DepartureReason) Lane() DepartureLane {
	switch r {
	case WindowClosed:
		return ScheduledLane
	case KilledByPerson, ReclaimedByOwner, ClusterDeleted:
		return ExemptLane
	default:
		return UnscheduledLane
	}
}

// Departure says why a machine leaves, and since when. It is on the Machine, in
// DepartureAnnotation, from before the first write that takes anything away: a restart,
// another leader and clusterctl move find it there.
//
// +kubebuilder:object:generate=false
type Departure struct {
	// Lane is that of Reason when the departure was admitted.
	Lane DepartureLane `json:"lane"`
	// Reason is why.
	Reason DepartureReason `json:"reason"`
	// Since is when the departure was admitted, by the clock of the manager that did. Its
	// budget is measured by the same clock; that of an API server may be another.
	Since metav1.Time `json:"since"`
	// MachineUID is the Machine's when it was written. clusterctl move makes another.
	MachineUID types.UID `json:"machineUID"`
	// Grace is the gracefulShutdownTimeout at that time, such as 300s. A shorter one applies to later departures.
	Grace string `json:"grace,omitempty"`
	// Skips are the waits of Cluster API that were ended for this departure: annotations
	// that are taken off again if the Machine stays after all.
	Skips []string `json:"skips,omitempty"`
	// ActionID names the departure in logs, the same for every try.
	ActionID string `json:"actionID"`
}

// NewDeparture returns the record of a departure that is admitted now.
func NewDeparture(reason DepartureReason, now time.Time, actionID string) Departure {
	return Departure{Lane: reason.Lane(), Reason: reason, Since: metav1.NewTime(now.UTC().Truncate(time.Second)), ActionID: actionID}
}

// ParseDeparture reads the value of DepartureAnnotation. ok is false for anything that no
// controller writes, such as a record without its instant.
func ParseDeparture(text string) (d Departure, ok bool) {
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.Since.IsZero() || d.Reason == "" {
		return Departure{}, false
	}
	return d, true
}

// String returns d as the value of DepartureAnnotation.
func (d Departure) String() string {
	b, err := json.Marshal(d)
	if err != nil {
		return "" // Strings and an instant always encode.
	}
	return string(b)
}

// Urgent reports whether a person or the owner takes the machine out at once.
func (d Departure) Urgent() bool {
	return d.Reason == KilledByPerson || d.Reason == ReclaimedByOwner
}
