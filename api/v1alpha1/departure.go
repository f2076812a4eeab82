// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DepartureLane determines whether a departure waits for others.
//
// +kubebuilder:object:generate=false
type DepartureLane string

// The lanes of a departure.
const (
	// ScheduledLane is for the end of a window.
	ScheduledLane DepartureLane = "scheduled"
	// UnscheduledLane is for all other departures that are not urgent.
	UnscheduledLane DepartureLane = "unscheduled"
	// ExemptLane is for departures that wait for no others.
	ExemptLane DepartureLane = "exempt"
)

// DepartureReason is why a machine leaves.
//
// +kubebuilder:object:generate=false
type DepartureReason string

// The reasons of a departure.
const (
	// WindowClosed means that the machine's window has ended.
	WindowClosed DepartureReason = "WindowClosed"
	// ScheduledMachineDeleted means that the ScheduledMachine is being deleted.
	ScheduledMachineDeleted DepartureReason = "Deleted"
	// MachineReplaced means that the Machine cannot be repaired, and a new one replaces it.
	MachineReplaced DepartureReason = "Replaced"
	// ClusterDeleted means that the Cluster is being deleted.
	ClusterDeleted DepartureReason = "ClusterDeleted"
	// KilledByPerson means that the kill switch is on.
	KilledByPerson DepartureReason = "KillSwitch"
	// ReclaimedByOwner means that the owner needs the machine.
	ReclaimedByOwner DepartureReason = "EmergencyReclaim"
	// DeletedByOthers means that another client deleted the Machine.
	DeletedByOthers DepartureReason = "External"
)

// Lane returns the lane of a departure for this reason.
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

// Departure is the departure record in DepartureAnnotation of a Machine. It is a request, with Since zero, or an
// admission, with Since set, after which the planner deletes the Machine. A restart, another leader and clusterctl move
// preserve it. Departures in the exempt lane are recorded as admitted. ADR 0037 has all states.
//
// +kubebuilder:object:generate=false
type Departure struct {
	// Lane is the lane of the departure.
	Lane DepartureLane `json:"lane"`
	// Reason is why the machine leaves.
	Reason DepartureReason `json:"reason"`
	// RequestedAt is since when the departure waits for its admission. It is zero in the exempt lane.
	RequestedAt metav1.Time `json:"requestedAt,omitzero"`
	// End is the announced end of the window that caused the departure, zero if there is none.
	End metav1.Time `json:"end,omitzero"`
	// Waiting is why the planner has not admitted a requested departure, or why the Machine of an admitted one is not
	// being deleted. It is nil before the planner's first answer.
	Waiting *DepartureWaiting `json:"waiting,omitempty"`
	// ExpiredAt is when the latest admission expired, zero if none did. An admission expires if the Machine is not
	// deleted in time.
	ExpiredAt metav1.Time `json:"expiredAt,omitzero"`
	// Interrupted reports that the record came from another Machine: clusterctl move or a restore created this Machine
	// during the departure. Its Node may be cordoned, so the departure continues whatever the schedule says.
	Interrupted bool `json:"interrupted,omitempty"`
	// Since is when the departure was admitted, by the clock of the manager that admitted it. The budget of the
	// departure is measured with the manager's clock, not with an API server's.
	Since metav1.Time `json:"since,omitzero"`
	// Cycle is the planner run that admitted the departure, in milliseconds since 1970, zero if none did.
	Cycle int64 `json:"cycle,omitempty"`
	// MachineUID is the Machine's UID when the record was written. clusterctl move creates the Machine again with
	// another UID.
	MachineUID types.UID `json:"machineUID"`
	// Grace is the gracefulShutdownTimeout when the departure was admitted, such as 300s. A timeout that is shortened
	// later does not apply to this departure.
	Grace string `json:"grace,omitempty"`
	// Skips are the annotations that end waits of Cluster API for this departure. They are removed again if the Machine
	// stays after all.
	Skips []string `json:"skips,omitempty"`
	// ActionID identifies the departure in logs. It is the same for all attempts.
	ActionID string `json:"actionID"`
}

// DepartureWaiting is why a requested departure is not admitted yet, or why an admitted one has not started.
//
// +kubebuilder:object:generate=false
type DepartureWaiting struct {
	// Reason is a reason of the condition DepartureGated, or DeletionFailed. Message is its message.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// DeletionFailed is the reason of a departure that was admitted, and whose Machine could not be deleted before the
// admission expired. It stays on record until the Machine is deleted.
const DeletionFailed = "DeletionFailed"

// NewDeparture returns the record of a departure that is admitted now.
func NewDeparture(reason DepartureReason, now time.Time, actionID string) Departure {
	return Departure{Lane: reason.Lane(), Reason: reason, Since: DepartureTime(now), ActionID: actionID}
}

// DepartureTime returns an instant with the precision of a departure record, rounded down to a second.
func DepartureTime(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }

// ParseDeparture parses the value of DepartureAnnotation. ok is false for every value that no controller writes, such
// as a record without an instant.
func ParseDeparture(text string) (d Departure, ok bool) {
	if text == "" {
		return Departure{}, false // Most Machines have none.
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.Since.IsZero() && d.RequestedAt.IsZero() || d.Reason == "" {
		return Departure{}, false
	}
	return d, true
}

// String returns d as the value of DepartureAnnotation.
func (d Departure) String() string {
	b, err := json.Marshal(d)
	if err != nil {
		return "" // Strings and an instant always marshal.
	}
	return string(b)
}

// Urgent reports whether a person or the owner removes the machine at once.
func (d Departure) Urgent() bool {
	return d.Reason == KilledByPerson || d.Reason == ReclaimedByOwner
}
