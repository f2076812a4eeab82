// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// meta is the metadata of an object.
type meta struct {
	Name, UID, ResourceVersion string
	Labels                     map[string]string
	Annotations                map[string]*string
	Finalizers                 []string
	DeletionTimestamp          *time.Time
	Generation                 int64
	OwnerReferences            []struct {
		UID        string
		Controller bool
	}
}

// sentOf parses the body of a request: an object, a merge patch, a JSON patch or the options of a deletion. It returns
// nil if the log has no body.
func sentOf(body json.RawMessage) *Sent {
	if len(body) == 0 || string(body) == "null" {
		return nil
	}
	if body[0] == '[' {
		return sentInSteps(body)
	}
	var b struct {
		Metadata      meta
		Preconditions struct{ UID, ResourceVersion string }
		Spec          struct{ Schedule struct{ Enabled *bool } }
	}
	// A field of another type belongs to no object that rules read.
	_ = json.Unmarshal(body, &b)
	return &Sent{
		UID:             cmp.Or(b.Preconditions.UID, b.Metadata.UID),
		ResourceVersion: cmp.Or(b.Preconditions.ResourceVersion, b.Metadata.ResourceVersion),
		Annotations:     b.Metadata.Annotations,
		Enabled:         b.Spec.Schedule.Enabled,
		Changes:         changesOf(body),
	}
}

// identifying are fields that identify the object.
var identifying = []string{"apiVersion", "kind", "metadata/uid", "metadata/resourceVersion", "metadata/name", "metadata/namespace"}

// changesOf lists the fields of an object, two levels deep.
func changesOf(body json.RawMessage) []string {
	var changes []string
	for field, value := range fieldsOf(body) {
		below := fieldsOf(value)
		for name := range below {
			changes = append(changes, field+"/"+name)
		}
		if len(below) == 0 {
			changes = append(changes, field)
		}
	}
	changes = slices.DeleteFunc(changes, func(c string) bool { return slices.Contains(identifying, c) })
	slices.Sort(changes)
	return changes
}

// fieldsOf returns nil if value is not an object.
func fieldsOf(value json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		return nil
	}
	return fields
}

// sentInSteps parses a JSON patch. Its test operations identify the object.
func sentInSteps(body json.RawMessage) *Sent {
	var steps []struct {
		Op, Path string
		Value    any
	}
	_ = json.Unmarshal(body, &steps) // As above.
	s := &Sent{Annotations: map[string]*string{}}
	for _, step := range steps {
		path := strings.Split(strings.TrimPrefix(step.Path, "/"), "/")
		text, _ := step.Value.(string)
		switch {
		case step.Op == "test" && step.Path == "/metadata/uid":
			s.UID = text
		case step.Op == "test" && step.Path == "/metadata/resourceVersion":
			s.ResourceVersion = text
		case step.Op != "test":
			s.change(path, step.Op == "remove", text)
		}
	}
	return s
}

// unescape converts a part of a JSON pointer to a key.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func (s *Sent) change(path []string, remove bool, text string) {
	s.Changes = append(s.Changes, strings.Join(path[:min(2, len(path))], "/"))
	if len(path) != 3 || path[0] != "metadata" || path[1] != "annotations" {
		return
	}
	if value := &text; remove {
		s.Annotations[unescape.Replace(path[2])] = nil
	} else {
		s.Annotations[unescape.Replace(path[2])] = value
	}
}

// stateOf parses the object in the response to an accepted request. It sets name if the request had none. It returns
// nil if there is no object.
func stateOf(body json.RawMessage, verb string, name *string) *State {
	var b struct {
		Kind     string
		Metadata meta
		Details  struct{ UID string }
		Spec     json.RawMessage
		Status   json.RawMessage
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return nil
	}
	if b.Kind == "Status" {
		if b.Details.UID == "" || verb != "delete" {
			return nil
		}
		return &State{UID: b.Details.UID, Deleting: true, Gone: true}
	}
	if b.Metadata.UID == "" {
		return nil
	}
	*name = cmp.Or(*name, b.Metadata.Name)
	s := &State{UID: b.Metadata.UID, Labels: b.Metadata.Labels, Annotations: map[string]string{}, Deleting: b.Metadata.DeletionTimestamp != nil}
	s.Generation = b.Metadata.Generation
	// Not every API server has numeric versions. Without one, no state is later than another.
	s.Version, _ = strconv.ParseInt(b.Metadata.ResourceVersion, 10, 64)
	for key, value := range b.Metadata.Annotations {
		if value != nil {
			s.Annotations[key] = *value
		}
	}
	for _, owner := range b.Metadata.OwnerReferences {
		if owner.Controller {
			s.Owner = owner.UID
		}
	}
	s.Gone = len(b.Metadata.Finalizers) == 0 && (s.Deleting || verb == "delete")
	s.readSpec(b.Spec)
	s.readStatus(b.Status)
	return s
}

// A reference is one of a Machine: with its API group, or in older versions of the API with its API version.
type reference struct{ APIGroup, APIVersion, Name string }

// readSpec parses the spec of a Machine or a ScheduledMachine.
func (s *State) readSpec(spec json.RawMessage) {
	var b struct {
		ClusterName       string
		InfrastructureRef reference
		Bootstrap         struct{ ConfigRef reference }
		Schedule          struct{ Enabled *bool }
		KillSwitch        bool
	}
	_ = json.Unmarshal(spec, &b) // Other kinds have fields of other types.
	s.ClusterName, s.KillSwitch = b.ClusterName, b.KillSwitch
	s.Disabled = b.Schedule.Enabled != nil && !*b.Schedule.Enabled
	for _, ref := range []reference{b.Bootstrap.ConfigRef, b.InfrastructureRef} {
		if group, _, _ := strings.Cut(ref.APIVersion, "/"); ref.Name != "" {
			s.Parts = append(s.Parts, Part{cmp.Or(ref.APIGroup, group), ref.Name})
		}
	}
}

// readStatus parses the status of a Machine or a ScheduledMachine.
func (s *State) readStatus(status json.RawMessage) {
	var b struct {
		NodeRef                               struct{ Name string }
		ObservedGeneration                    int64
		NextCleanup, NextCleanupAnnouncedTime time.Time
	}
	_ = json.Unmarshal(status, &b) // As above.
	s.HasNode, s.ObservedGeneration = b.NodeRef.Name != "", b.ObservedGeneration
	s.NextCleanup, s.NextCleanupAnnouncedTime = b.NextCleanup, b.NextCleanupAnnouncedTime
}
