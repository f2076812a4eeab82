// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

const kind = "ScheduledMachine"

// readFiles returns the ScheduledMachines of some files; "-" is in. It skips other objects. A file without a
// ScheduledMachine is an error.
func readFiles(paths []string, in io.Reader) ([]plan.Machine, error) {
	var machines []plan.Machine
	var errs []error
	for _, path := range paths {
		data, err := readFile(path, in)
		if err != nil {
			return nil, err
		}
		found, err := readMachines(path, data)
		if err != nil {
			errs = append(errs, err)
		} else if len(found) == 0 {
			errs = append(errs, fmt.Errorf("%s: contains no %s of %s", path, kind, v1alpha1.GroupVersion))
		}
		machines = append(machines, found...)
	}
	return machines, errors.Join(errs...)
}

func readFile(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return data, nil
	}
	return os.ReadFile(path) //nolint:gosec // the user says which file; the error, what it was doing
}

// readMachines reads every document of a file.
func readMachines(path string, data []byte) ([]plan.Machine, error) {
	docs, err := split(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var machines []plan.Machine
	var errs []error
	for i, doc := range docs {
		found, err := readDocument(doc)
		if err != nil {
			if !errors.As(err, new(machineError)) {
				err = fmt.Errorf("%s, document %d: %w", path, i+1, err)
			}
			errs = append(errs, err)
		}
		machines = append(machines, found...)
	}
	return machines, errors.Join(errs...)
}

// split returns the documents of a JSON stream, or else of a YAML stream.
func split(data []byte) ([][]byte, error) {
	var docs [][]byte
	stream := json.NewDecoder(bytes.NewReader(data))
	for {
		var doc json.RawMessage
		err := stream.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			break
		}
		docs = append(docs, doc)
	}
	docs = nil
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading YAML: %w", err)
		}
		docs = append(docs, doc)
	}
}

// readDocument reads one object or list.
func readDocument(doc []byte) ([]plan.Machine, error) {
	raw, repeated := yaml.YAMLToJSONStrict(doc)
	if repeated != nil {
		// Repeated keys are an error only in a ScheduledMachine. All other YAML errors count for each object.
		var err error
		if raw, err = yaml.YAMLToJSON(doc); err != nil {
			return nil, err
		}
	}
	machines, err := readObject(raw, "", "")
	if repeated != nil && (len(machines) > 0 || err != nil) {
		return nil, errors.Join(repeated, err)
	}
	return machines, err
}

// head holds the fields that identify the kind of an object, and the items of a list.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

// readObject reads an object, or the items of a list. The items of a typed list may omit apiVersion and kind.
func readObject(raw []byte, apiVersion, objectKind string) ([]plan.Machine, error) {
	h := head{APIVersion: apiVersion, Kind: objectKind}
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, nil //nolint:nilerr // not an object of the Kubernetes API, so not for us
	}
	switch group := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind).Group; {
	case h.Kind == "List" && h.APIVersion == "v1":
		return readItems(h.Items, "", "")
	case group != v1alpha1.GroupVersion.Group:
		return nil, nil
	case h.Kind == kind+"List":
		return readItems(h.Items, h.APIVersion, kind)
	case h.Kind != kind:
		return nil, nil
	case h.APIVersion != v1alpha1.GroupVersion.String():
		return nil, fmt.Errorf("apiVersion: %s is not known to this program, only %s", h.APIVersion, v1alpha1.GroupVersion)
	}
	m, err := readMachine(raw)
	if err != nil {
		return nil, err
	}
	return []plan.Machine{m}, nil
}

func readItems(items []json.RawMessage, apiVersion, itemKind string) ([]plan.Machine, error) {
	var machines []plan.Machine
	var errs []error
	for _, item := range items {
		found, err := readObject(item, apiVersion, itemKind)
		machines, errs = append(machines, found...), append(errs, err)
	}
	return machines, errors.Join(errs...)
}

// manifest is the part of a ScheduledMachine that a plan needs. This program does not validate the other fields.
type manifest struct {
	Metadata struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
	} `json:"metadata"`
	Spec struct {
		Schedule *struct {
			v1alpha1.Schedule `json:",inline"`

			// Timezone is a pointer: an absent zone is UTC, and an empty one is an error.
			Timezone *string `json:"timezone"`
		} `json:"schedule"`
		KillSwitch bool `json:"killSwitch"`
	} `json:"spec"`
}

// machineError is an error that names its machine.
type machineError struct {
	name string
	error
}

func (e machineError) Error() string { return e.name + ": " + e.error.Error() }
func (e machineError) Unwrap() error { return e.error }

// readMachine reads one ScheduledMachine as the API server would, defaults included.
func readMachine(raw []byte) (plan.Machine, error) {
	var m manifest
	wrongType := json.Unmarshal(raw, &m) // for its clearer errors; it ignores the case of keys
	m = manifest{Metadata: m.Metadata}
	unknown, err := strictjson.UnmarshalStrict(raw, &m)
	name := cmp.Or(m.Metadata.Name, m.Metadata.GenerateName+"(no name)")
	if err != nil {
		return plan.Machine{}, machineError{name, typeError(wrongType, err)}
	}
	if err := scheduleErrors(name, unknown); err != nil {
		return plan.Machine{}, err
	}
	s := m.Spec.Schedule
	if s == nil {
		return plan.Machine{}, machineError{name, errors.New("spec.schedule: Required value")}
	}
	spec := machineschedule.Spec(&s.Schedule)
	if s.Timezone != nil {
		spec.Timezone = *s.Timezone
	}
	return plan.Machine{
		Name:       name,
		Schedule:   spec,
		Enabled:    s.Enabled == nil || *s.Enabled,
		KillSwitch: m.Spec.KillSwitch,
	}, nil
}

// typeError explains the most frequent mistake, an hour that YAML parses as a number. Other errors are returned as
// otherwise.
func typeError(err, otherwise error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return otherwise
	}
	help := ""
	if wrong.Type.String() == "string" {
		help = ": put it in quotes"
	}
	path := strings.Replace(wrong.Field, "schedule.Schedule.", "schedule.", 1)
	return fmt.Errorf("%s: Invalid value: %s, want %s%s", path, wrong.Value, wrong.Type, help)
}

// scheduleErrors returns the strict reader's errors about the schedule. It drops other unknown fields, because manifest
// declares only a part of the spec.
func scheduleErrors(name string, all []error) error {
	var errs []error
	for _, err := range all {
		var field strictjson.FieldError
		if errors.As(err, &field) && strings.HasPrefix(field.FieldPath(), "spec.schedule") {
			errs = append(errs, machineError{name, fmt.Errorf("%w; spec.schedule has daysOfWeek, hoursOfDay, timezone and enabled", err)})
		}
	}
	return errors.Join(errs...)
}
