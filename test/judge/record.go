// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"time"
)

// A Record is one request for a change to an API server, or one line of the manager's audit log.
type Record struct {
	// ID is the request's auditID, or the line's action_id.
	ID string
	// At is when the request arrived, or the time of the line.
	At time.Time
	// Took is how long the API server worked on the request; zero for a line.
	Took time.Duration
	// User is the user of the request, Program the name in its user agent.
	User, Program string
	// Node is the Node that the user's token is bound to, empty if it is not bound.
	Node string
	// Verb is create, update, patch, delete or deletecollection.
	Verb string
	// Object is the object of the request. Subresource is its part, empty for the object itself.
	Object      Object
	Subresource string
	// Code is the HTTP status of the response, zero if there was none.
	Code int
	// Sent is the content of the request, nil if the log does not have it.
	Sent *Sent
	// Got is the object after the request, nil if the response or the log does not have it.
	Got *State
	// Line is set for a line of the manager's audit log. Then only ID and At are set besides.
	Line *Line
}

// A Line is the part of a line of the manager's audit log that rules read.
type Line struct {
	Kind    string `json:"kind"`
	Machine string `json:"machine"`
	Reason  string `json:"reason"`
	Outcome string `json:"outcome"`
	UID     string `json:"uid"`
}

// Accepted reports whether the API server carried out the request.
func (r Record) Accepted() bool { return r.Code >= 200 && r.Code < 300 }

// ByManager reports whether a manager of 5-Spot sent the request.
func (r Record) ByManager() bool {
	return r.Line == nil && (r.User == managerUser || strings.Contains(r.Program, managerProgram))
}

// ByAgent reports whether a reclaim agent sent the request.
func (r Record) ByAgent() bool {
	return r.Line == nil && (r.User == agentUser || r.Program == agentProgram)
}

// done reports whether the manager did this to the object itself, not to a subresource.
func (r Record) done(verbs ...string) bool {
	return r.ByManager() && r.Accepted() && r.Subresource == "" && slices.Contains(verbs, r.Verb)
}

// creates reports whether the object did not exist before the request.
func (r Record) creates() bool { return r.Verb == "create" || r.Code == 201 }

// isReview reports whether the request is a review, such as TokenReview, which changes nothing.
func (r Record) isReview() bool { return strings.HasSuffix(r.Object.Resource, "reviews") }

// uid is the UID of the object, empty if unknown.
func (r Record) uid() string {
	switch {
	case r.Got != nil && r.Got.UID != "":
		return r.Got.UID
	case r.Sent != nil:
		return r.Sent.UID
	default:
		return ""
	}
}

// Sent is the part of a request's content that rules read.
type Sent struct {
	// UID and ResourceVersion are its preconditions.
	UID, ResourceVersion string
	// Annotations are the annotations that it sets; nil removes one.
	Annotations map[string]*string
	// Enabled is spec.schedule.enabled.
	Enabled *bool
	// Changes are the fields that it changes, two levels deep, such as "metadata/labels", without identifying fields.
	Changes []string
}

// sets returns the value of an annotation that the request sets.
func (s *Sent) sets(key string) (value string, ok bool) {
	if s == nil || s.Annotations[key] == nil {
		return "", false
	}
	return *s.Annotations[key], true
}

// takesOff reports whether the request removes an annotation.
func (s *Sent) takesOff(key string) bool {
	if s == nil {
		return false
	}
	value, named := s.Annotations[key]
	return named && value == nil
}

// A State is the part of an object on an API server that rules read.
type State struct {
	// UID is the object's UID, Owner the UID of its controller.
	UID, Owner string
	// Version is its resourceVersion as a number; a larger one is later.
	Version int64
	// Labels and Annotations are the object's.
	Labels, Annotations map[string]string
	// Deleting reports that it has a deletionTimestamp, Gone that it no longer exists after the request.
	Deleting, Gone bool
	// Generation is metadata.generation, ObservedGeneration status.observedGeneration.
	Generation, ObservedGeneration int64
	// ClusterName is spec.clusterName.
	ClusterName string
	// Parts are the bootstrap config and the infrastructure machine that a Machine refers to.
	Parts []Part
	// HasNode reports that status.nodeRef has a name.
	HasNode bool
	// Disabled reports that spec.schedule.enabled is false, KillSwitch that spec.killSwitch is true.
	Disabled, KillSwitch bool
	// NextCleanup is status.nextCleanup of a ScheduledMachine: when its machine should leave. NextCleanupAnnouncedTime is
	// status.nextCleanupAnnouncedTime: since when it says so.
	NextCleanup, NextCleanupAnnouncedTime time.Time
}

// A Part is a reference to an object of a provider, in the namespace of the Machine.
type Part struct{ Group, Name string }

// free reports whether Cluster API may drain a Machine: it is being deleted, and no hook of 5-Spot holds it.
func (s *State) free() bool { return s.Deleting && !s.has(hooks[0]) }

func (s *State) has(annotation string) bool {
	if s == nil {
		return false
	}
	_, ok := s.Annotations[annotation]
	return ok
}
