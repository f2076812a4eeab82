// SPDX-License-Identifier: Apache-2.0

package audit

import "time"

// Kind is the kind of an action on a machine.
type Kind string

// The kinds.
const (
	// Join means that an object of a joining machine is created.
	Join Kind = "Join"
	// Depart means that a graceful departure starts, or continues because a hook is removed.
	Depart Kind = "Depart"
	// Remove means that the remaining objects of a machine are deleted, or that its waits are ended.
	Remove Kind = "Remove"
	// KillSwitch means that the kill switch removes a machine.
	KillSwitch Kind = "KillSwitch"
	// EmergencyRemove means that a machine is removed for its owner.
	EmergencyRemove Kind = "EmergencyRemove"
	// NodePatch means a write to a Node, to its pods, or to the agent's objects in the workload cluster.
	NodePatch Kind = "NodePatch"
)

// Kinds has every kind.
var Kinds = []Kind{Join, Depart, Remove, KillSwitch, EmergencyRemove, NodePatch}

// Outcome is the result of a write.
type Outcome string

// The outcomes.
const (
	// Success means that the API server carried it out.
	Success Outcome = "success"
	// Suppressed means that actuation is paused and no request was sent.
	Suppressed Outcome = "suppressed"
	// DryRun means that the manager runs with --dry-run and no request was sent.
	DryRun Outcome = "dryrun"
	// Conflict means that the object has changed, or that another object has its name.
	Conflict Outcome = "conflict"
	// NotFound means that the object did not exist.
	NotFound Outcome = "not_found"
	// APIError means that the API server rejected the request or did not respond.
	APIError Outcome = "api_error"
	// RemoteUnreachable means that the workload cluster did not respond.
	RemoteUnreachable Outcome = "remote_unreachable"
	// AckRejected means that the API server responded with another object than the requested one.
	AckRejected Outcome = "ack_rejected"
	// Canceled means that the manager ended before the API server responded.
	Canceled Outcome = "canceled"
)

// Outcomes has every outcome.
var Outcomes = []Outcome{Success, Suppressed, DryRun, Conflict, NotFound, APIError, RemoteUnreachable, AckRejected, Canceled}

// A Line is one write to an object of a machine, or a suppressed one.
type Line struct {
	// Time is when the manager decided to write.
	Time time.Time `json:"time"`
	// Cycle is the planner run that admitted it, in milliseconds since 1970, zero if none did.
	Cycle int64 `json:"cycle"`
	// Kind is the kind of the action.
	Kind Kind `json:"kind"`
	// Machine is the namespace and name of the ScheduledMachine, or of a Machine without one. Empty means all
	// machines of Cluster.
	Machine string `json:"machine"`
	// Cluster is the namespace and name of its Cluster.
	Cluster string `json:"cluster"`
	// Reason is why.
	Reason string `json:"reason"`
	// GraceSeconds is the time that a graceful departure may take, zero for other kinds.
	GraceSeconds int64 `json:"grace_seconds"`
	// Outcome is the result.
	Outcome Outcome `json:"outcome"`
	// ActionID is the id of the departure, with a suffix for a later step. It is empty for other actions.
	ActionID string `json:"action_id"`
	// Lane is the lane of a departure, empty for other actions.
	Lane string `json:"lane"`
	// UID is the UID of the written object, empty if there is none.
	UID string `json:"uid"`
	// By is the text of the request that the action serves, for example the matched process and pattern of an
	// owner's request. It is absent without a request.
	By string `json:"by,omitempty"`
}
