// SPDX-License-Identifier: Apache-2.0

// Package variable parses and validates the topology variable scheduledMachines of a Cluster. It converts its items to
// specs of ScheduledMachines. It does not access a cluster.
package variable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	specvalidation "github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// Name is the name of the variable.
const Name = "scheduledMachines"

const (
	// MaxMachines bounds the list. A Cluster object contains the whole list, and each update sends all of it.
	MaxMachines = 250
	// MaxNameLength bounds the name of a ScheduledMachine, which becomes a label value.
	MaxNameLength = 63
)

// Machine is one item of the variable. It has the fields of a ScheduledMachine's spec, except schedule.enabled and
// killSwitch, which people and owners set.
type Machine struct {
	Name                      string                     `json:"name"`
	Schedule                  Schedule                   `json:"schedule"`
	MachineTemplate           v1alpha1.MachineTemplate   `json:"machineTemplate,omitzero"`
	BootstrapTemplateRef      v1alpha1.TemplateReference `json:"bootstrapTemplateRef"`
	InfrastructureTemplateRef v1alpha1.TemplateReference `json:"infrastructureTemplateRef"`
	Priority                  *int32                     `json:"priority,omitempty"`
	GracefulShutdownTimeout   string                     `json:"gracefulShutdownTimeout,omitempty"`
	NodeDrainTimeout          string                     `json:"nodeDrainTimeout,omitempty"`
	KillIfCommands            []string                   `json:"killIfCommands,omitempty"`
	ResumeAfterReclaim        v1alpha1.ResumePolicy      `json:"resumeAfterReclaim,omitempty"`
	ReclaimHold               reclaim.Hold               `json:"reclaimHold,omitempty"`
	NodeTaints                []v1alpha1.NodeTaint       `json:"nodeTaints,omitempty"`
}

// Schedule is the schedule of a ScheduledMachine without enabled.
type Schedule struct {
	DaysOfWeek []string `json:"daysOfWeek,omitempty"`
	HoursOfDay []string `json:"hoursOfDay,omitempty"`
	Timezone   string   `json:"timezone,omitempty"`
}

// Of returns the value of the variable in the topology of a Cluster, and whether it exists.
func Of(cluster *clusterv1.Cluster) (value []byte, found bool) {
	for _, v := range cluster.Spec.Topology.Variables {
		if v.Name == Name {
			return v.Value.Raw, true
		}
	}
	return nil, false
}

// Parse parses the variable of a Cluster with the given name. It returns the machines or all errors. With errors it
// returns no machines, because the list would be incomplete.
func Parse(value []byte, cluster string) ([]Machine, field.ErrorList) {
	path := field.NewPath(Name)
	var items []json.RawMessage
	value = bytes.TrimSpace(value)
	if err := json.Unmarshal(value, &items); err != nil || bytes.Equal(value, []byte("null")) {
		return nil, field.ErrorList{field.TypeInvalid(path, field.OmitValueType{}, "must be a list; an empty one asks for no machines")}
	}
	if len(items) > MaxMachines {
		return nil, field.ErrorList{field.TooMany(path, len(items), MaxMachines)}
	}
	var errs field.ErrorList
	machines := make([]Machine, len(items))
	seen := map[string]bool{}
	for i, item := range items {
		at := path.Index(i)
		if wrong := decode(item, &machines[i], at); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		errs = append(errs, machines[i].validate(cluster, at)...)
		if name := machines[i].Name; seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[machines[i].Name] = true
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return machines, nil
}

// decode rejects unknown fields. Otherwise a misspelt field would silently have its default.
func decode(item []byte, into *Machine, path *field.Path) field.ErrorList {
	unknown, err := kjson.UnmarshalStrict(item, into)
	if err != nil {
		return field.ErrorList{field.TypeInvalid(path, field.OmitValueType{}, err.Error())}
	}
	var errs field.ErrorList
	for _, e := range unknown {
		errs = append(errs, field.Forbidden(path, e.Error()))
	}
	return errs
}

func (m Machine) validate(cluster string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "name the machine: its ScheduledMachine is called CLUSTER-NAME"))
	} else {
		for _, msg := range validation.IsDNS1123Label(m.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), m.Name, msg))
		}
		if long := ObjectName(cluster, m.Name); len(long) > MaxNameLength {
			errs = append(errs, field.Invalid(path.Child("name"), m.Name, fmt.Sprintf(
				"its ScheduledMachine would be called %s, which is longer than %d characters: shorten it", long, MaxNameLength)))
		}
	}
	spec := m.Spec(cluster)
	for _, e := range specvalidation.Spec(&spec, path) {
		errs = append(errs, asTemplateError(e))
	}
	return errs
}

// asTemplateError converts an error about an inline spec to an error about the template reference, because the variable
// has no inline specs.
func asTemplateError(e *field.Error) *field.Error {
	for _, inline := range []string{"bootstrapSpec", "infrastructureSpec"} {
		if head, ok := strings.CutSuffix(e.Field, "."+inline); ok {
			ref := strings.TrimSuffix(inline, "Spec") + "TemplateRef"
			return &field.Error{Type: field.ErrorTypeRequired, Field: head + "." + ref, BadValue: "", Detail: "name a template in the namespace of the Cluster"}
		}
	}
	return e
}

// ObjectName returns the name of the ScheduledMachine of an item.
func ObjectName(cluster, item string) string { return cluster + "-" + item }

// Spec returns the spec of the ScheduledMachine. It does not set schedule.enabled and killSwitch, which people and
// owners set.
func (m Machine) Spec(cluster string) v1alpha1.ScheduledMachineSpec {
	return v1alpha1.ScheduledMachineSpec{
		ClusterName: cluster,
		Schedule: v1alpha1.Schedule{
			DaysOfWeek: m.Schedule.DaysOfWeek, HoursOfDay: m.Schedule.HoursOfDay, Timezone: m.Schedule.Timezone,
		},
		MachineTemplate:           m.MachineTemplate,
		BootstrapTemplateRef:      m.BootstrapTemplateRef,
		InfrastructureTemplateRef: m.InfrastructureTemplateRef,
		Priority:                  m.Priority,
		GracefulShutdownTimeout:   m.GracefulShutdownTimeout,
		NodeDrainTimeout:          m.NodeDrainTimeout,
		KillIfCommands:            m.KillIfCommands,
		ResumeAfterReclaim:        m.ResumeAfterReclaim,
		ReclaimHold:               m.ReclaimHold,
		NodeTaints:                m.NodeTaints,
	}
}
