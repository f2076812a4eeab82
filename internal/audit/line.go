// SPDX-License-Identifier: Apache-2.0

package audit

import "time"

// Kind is what is done to a machine.
type Kind string

// The kinds.
const (
	// Join means that an object of a machine that joins is made.
	Join Kind = "Join"
	// Depart means that a graceful departure begins, or is let go on.
	Depart Kind = "Depart"
	// Remove means that what is left of a machine is deleted, or that its waits are ended.
	Remove Kind = "Remove"
	// KillSwitch means that the kill switch takes a machine out.
	KillSwitch Kind = "KillSwitch"
	// EmergencyRemove means that a machine is taken out for its owner.
	EmergencyRemove Kind = "EmergencyRemove"
	// NodePatch means that a Node is changed or deleted, its pods, or what its agent needs in the
	// workload cluster.
	NodePatch Kind = "NodePatch"
)

// Kinds are all of them.
var Kinds = []Kind{Join, Depart, Remove, KillSwitch, EmergencyRemove, NodePatch}

// Outcome is what became of one try.
type Outcome string

// The outcomes.
const (
	// Success means that the API server did it.
	Success Outcome = "success"
	// Suppressed means that actuation is paused: nothing was sent.
	Suppressed Outcome = "suppressed"
	// DryRun means that the manager only says what it would do: nothing was sent.
	DryRun Outcome = "dryrun"
	// Conflict means that the object has changed, or that another has its name.
	Conflict Outcome = "conflict"
	// NotFound means that the object was gone already.
	NotFound Outcome = "not_found"
	// APIError means that the API server refused it, or did not answer.
	APIError Outcome = "api_error"
	// RemoteUnreachable means that the workload cluster did not answer.
	RemoteUnreachable Outcome = "remote_unreachable"
	// AckRejected means that the API server answered with another object than was asked for.
	AckRejected Outcome = "ack_rejected"
	// Canceled means that it was not tried again: nobody knows what became of the last try.
	Canceled Outcome = "canceled"
)

// Outcomes are all of them.
var Outcomes = []Outcome{Success, Suppressed, DryRun, Conflict, NotFound, APIError, RemoteUnreachable, AckRejected, Canceled}

// Final reports whether nothing more is said of an action after this outcome. What is not
// final is tried again, and has the same id then.
func (o Outcome) Final() bool {
	switch o {
	case Conflict, APIError, RemoteUnreachable:
		return false
	default:
		return true
	}
}

// A Line is one try to do something to a machine.
type Line struct {
	// Time is when it was tried, or given up.
	Time time.Time `json:"time"`
	// Cycle is the run of the planner that admitted it, in milliseconds since 1970; zero if
	// none did.
	Cycle int64 `json:"cycle"`
	// Kind is what was tried.
	Kind Kind `json:"kind"`
	// Machine is the namespace and name of the ScheduledMachine, or of a Machine that
	// belongs to none. Empty means all of Cluster.
	Machine string `json:"machine"`
	// Cluster is the namespace and name of its Cluster.
	Cluster string `json:"cluster"`
	// Reason is why.
	Reason string `json:"reason"`
	// GraceSeconds is what a graceful departure may take; zero elsewhere.
	GraceSeconds int64 `json:"grace_seconds"`
	// Outcome is what became of it.
	Outcome Outcome `json:"outcome"`
	// ActionID names the action, the same for every try.
	ActionID string `json:"action_id"`
	// Lane is how far a departure waits for others; empty for what is none.
	Lane string `json:"lane"`
	// Attempt counts the tries of this manager, from 1.
	Attempt int `json:"attempt"`
	// UID is that of the object that was written; empty if there is none.
	UID string `json:"uid"`
	// By is the text of the request that the action serves, for example the matched process and pattern of an owner's
	// request. It is absent without a request.
	By string `json:"by,omitempty"`
}
