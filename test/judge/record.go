// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"time"
)

// A Record is one request that asked an API server to change something, or one line of the
// manager's audit log.
type Record struct {
	// ID is the request's auditID, or the line's action_id.
	ID string
	// At is when the request came in, or what the line says.
	At time.Time
	// Took is how long the API server worked on the request; zero for a line.
	Took time.Duration
	// User and Program are who sent it: the user, and what the program calls itself.
	User, Program string
	// Node is the Node that the user's token is bound to; empty for a token that is not.
	Node string
	// Verb is create, update, patch, delete or deletecollection.
	Verb string
	// Object is what it is about; Subresource is the part, empty for the object itself.
	Object      Object
	Subresource string
	// Code is the HTTP status of the answer; zero if there was none.
	Code int
	// Sent is what was sent, nil if the log does not have it.
	Sent *Sent
	// Got is the object as it was afterwards, nil if the answer or the log does not have it.
	Got *State
	// Line is set for a line of the manager's audit log, and then only ID and At are, too.
	Line *Line
}

// A Line is what a rule has to know of a line of the manager's audit log.
type Line struct {
	Kind    string `json:"kind"`
	Machine string `json:"machine"`
	Outcome string `json:"outcome"`
	UID     string `json:"uid"`
}

// Accepted reports whether the API server did it.
func (r Record) Accepted() bool { return r.Code >= 200 && r.Code < 300 }

// ByManager reports whether a manager of 5-Spot sent it.
func (r Record) ByManager() bool {
	return r.Line == nil && (r.User == managerUser || strings.Contains(r.Program, managerProgram))
}

// ByAgent reports whether a reclaim agent sent it.
func (r Record) ByAgent() bool {
	return r.Line == nil && (r.User == agentUser || r.Program == agentProgram)
}

// done reports whether the manager did this to the object itself, not to a part of it.
func (r Record) done(verbs ...string) bool {
	return r.ByManager() && r.Accepted() && r.Subresource == "" && slices.Contains(verbs, r.Verb)
}

// creates reports whether it is, or was, about an object that did not exist.
func (r Record) creates() bool { return r.Verb == "create" || r.Code == 201 }

// asks reports whether it is a question that an API server answers with an object, such as
// TokenReview, and changes nothing.
func (r Record) asks() bool { return strings.HasSuffix(r.Object.Resource, "reviews") }

// uid is that of the object, empty if nothing says so.
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

// Sent is what was asked for, as far as rules have to know.
type Sent struct {
	// UID and ResourceVersion say which object is meant, and in which version.
	UID, ResourceVersion string
	// Annotations are those that are set; nil is one that is taken off.
	Annotations map[string]*string
	// Enabled is spec.schedule.enabled.
	Enabled *bool
	// Changes are the parts that it is about, two levels deep, such as "metadata/labels",
	// without what says which object is meant.
	Changes []string
}

// sets returns an annotation that is set.
func (s *Sent) sets(key string) (value string, ok bool) {
	if s == nil || s.Annotations[key] == nil {
		return "", false
	}
	return *s.Annotations[key], true
}

// takesOff reports whether an annotation is taken off.
func (s *Sent) takesOff(key string) bool {
	if s == nil {
		return false
	}
	value, named := s.Annotations[key]
	return named && value == nil
}

// A State is an object as an API server had it, as far as rules have to know.
type State struct {
	// UID is the object's own, Owner that of its controller.
	UID, Owner string
	// Version is its resourceVersion; the larger one is the later one.
	Version int64
	// Labels and Annotations are the object's.
	Labels, Annotations map[string]string
	// Deleting says that it has a deletionTimestamp, and Gone that it does not exist
	// afterwards.
	Deleting, Gone bool
	// NextCleanup is status.nextCleanup of a ScheduledMachine: when its machine is to leave.
	NextCleanup time.Time
}

func (s *State) has(annotation string) bool {
	if s == nil {
		return false
	}
	_, ok := s.Annotations[annotation]
	return ok
}
