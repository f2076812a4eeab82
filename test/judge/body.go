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
	OwnerReferences            []struct {
		UID        string
		Controller bool
	}
}

// sentOf reads the body of a request: an object, a merge patch, a JSON patch or the options
// of a deletion. It is nil for one that is not in the log.
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
	// What has another type is no field of the objects that rules ask about.
	_ = json.Unmarshal(body, &b)
	return &Sent{
		UID:             cmp.Or(b.Preconditions.UID, b.Metadata.UID),
		ResourceVersion: cmp.Or(b.Preconditions.ResourceVersion, b.Metadata.ResourceVersion),
		Annotations:     b.Metadata.Annotations,
		Enabled:         b.Spec.Schedule.Enabled,
		Changes:         changesOf(body),
	}
}

// identifying are fields that say which object is meant.
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

// fieldsOf is nil for what is no object.
func fieldsOf(value json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		return nil
	}
	return fields
}

// sentInSteps reads a JSON patch. What it tests says which object is meant.
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

// unescape turns a part of a JSON pointer into the key that it stands for.
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

// stateOf reads the object in the answer to a request that was accepted, and fills in its
// name where the request had none. It is nil where there is no object.
func stateOf(body json.RawMessage, verb string, name *string) *State {
	var b struct {
		Kind     string
		Metadata meta
		Details  struct{ UID string }
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
	// Not every API server has numbers for versions; without one no state is later than another.
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
	var status struct{ NextCleanup time.Time }
	if json.Unmarshal(b.Status, &status) == nil {
		s.NextCleanup = status.NextCleanup
	}
	s.Gone = len(b.Metadata.Finalizers) == 0 && (s.Deleting || verb == "delete")
	return s
}
