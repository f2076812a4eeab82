// SPDX-License-Identifier: Apache-2.0

package topologymutation

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

// Patterns of the schema. The CRD of ScheduledMachine has the same.
const (
	namePattern            = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	objectNamePattern      = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	configTemplatePattern  = `^[A-Z][-A-Za-z0-9]*ConfigTemplate$`
	machineTemplatePattern = `^[A-Z][-A-Za-z0-9]*MachineTemplate$`
	bootstrapPattern       = `^(bootstrap\.cluster\.x-k8s\.io|k0smotron\.io)/[^/]+$`
	infrastructurePattern  = `^(infrastructure\.cluster\.x-k8s\.io|k0smotron\.io)/[^/]+$`
	timezonePattern        = `^[A-Za-z][A-Za-z0-9_+/-]*$`
	durationPattern        = `^\s*[0-9]+[smh]\s*$`
)

// Variable returns the definition of the variable, with the defaults and limits of a ScheduledMachine. ValidateTopology
// checks what a schema cannot express: the grammar of hours, and unique names, because Cluster API supports no CEL
// rules at the root of a list. A ClusterClass that does not use the extension can declare the same definition.
func Variable() clusterv1.ClusterClassVariable {
	machine := object("A machine that joins the Cluster on a schedule.", map[string]clusterv1.JSONSchemaProps{
		"name": text("Name of the machine. Its ScheduledMachine is called CLUSTER-NAME.", variable.MaxNameLength, namePattern),
		"schedule": object("When the machine belongs to the Cluster.", map[string]clusterv1.JSONSchemaProps{
			"daysOfWeek": texts("Days of the window, such as mon-fri.", 32, 256),
			"hoursOfDay": texts("Hours of the window, such as 19-6: 19:00:00 to 06:59:59.", 32, 256),
			"timezone":   withDefault(text("Zone of both, a name of the IANA time zone database.", 64, timezonePattern), "UTC"),
		}),
		"machineTemplate": object("Metadata for the Machine.", map[string]clusterv1.JSONSchemaProps{
			"labels": words("Labels of the Machine."), "annotations": words("Annotations of the Machine."),
		}),
		"bootstrapTemplateRef":      template("Template of the bootstrap config, in the Cluster's namespace.", bootstrapPattern, configTemplatePattern),
		"infrastructureTemplateRef": template("Template of the infrastructure machine, in the Cluster's namespace.", infrastructurePattern, machineTemplatePattern),
		"priority": withDefault(clusterv1.JSONSchemaProps{
			Type: "integer", Description: "Higher is more important.", Minimum: new(int64(0)), Maximum: new(int64(255)),
		}, 50),
		"gracefulShutdownTimeout": withDefault(text("Whole budget of a graceful departure, drain included.", 32, durationPattern), "5m"),
		"nodeDrainTimeout":        withDefault(text("Budget of the drain; 0s means no drain.", 32, durationPattern), "5m"),
		"killIfCommands":          texts("Patterns of the reclaim agent.", 100, 256),
		"resumeAfterReclaim": {
			Type: "string", Description: "What lends the machine again after its owner took it back.",
			Enum: values(v1alpha1.ResumeOnEnable, v1alpha1.ResumeOnResume),
		},
		"reclaimHold": {
			Type: "string", Description: "What the agent does about the pods as soon as a program matches.",
			Enum: values(reclaim.HoldNone, reclaim.HoldFreeze, reclaim.HoldFreezeOnly, reclaim.HoldKill),
		},
		"nodeTaints": array("Taints of the Node.", 32, object("A taint.", map[string]clusterv1.JSONSchemaProps{
			"key":    text("Key of the taint.", 317, ""),
			"value":  {Type: "string", Description: "Value of the taint.", MaxLength: new(int64(63))},
			"effect": {Type: "string", Description: "Effect on pods that do not tolerate the taint.", Enum: values("NoSchedule", "PreferNoSchedule", "NoExecute")},
		}, "key", "effect")),
	}, "name", "schedule", "bootstrapTemplateRef", "infrastructureTemplateRef")
	list := array("Machines that join the Cluster on a schedule.", variable.MaxMachines, machine)
	return clusterv1.ClusterClassVariable{
		Name: variable.Name, Required: new(false),
		Schema: clusterv1.VariableSchema{OpenAPIV3Schema: list},
	}
}

func template(description, apiVersionPattern, kindPattern string) clusterv1.JSONSchemaProps {
	return object(description, map[string]clusterv1.JSONSchemaProps{
		"apiVersion": text("Group and version of the template.", 317, apiVersionPattern),
		"kind":       text("Kind of the template.", 63, kindPattern),
		"name":       text("Name of the template.", 253, objectNamePattern),
	}, "apiVersion", "kind", "name")
}

func object(description string, properties map[string]clusterv1.JSONSchemaProps, required ...string) clusterv1.JSONSchemaProps {
	return clusterv1.JSONSchemaProps{Type: "object", Description: description, Properties: properties, Required: required}
}

func array(description string, most int64, items clusterv1.JSONSchemaProps) clusterv1.JSONSchemaProps {
	return clusterv1.JSONSchemaProps{Type: "array", Description: description, MaxItems: &most, Items: &items}
}

// text returns the schema of a string that is not empty.
func text(description string, maxLength int64, pattern string) clusterv1.JSONSchemaProps {
	return clusterv1.JSONSchemaProps{Type: "string", Description: description, MinLength: new(int64(1)), MaxLength: &maxLength, Pattern: pattern}
}

func texts(description string, most, maxLength int64) clusterv1.JSONSchemaProps {
	item := clusterv1.JSONSchemaProps{Type: "string", MinLength: new(int64(1)), MaxLength: &maxLength}
	return array(description, most, item)
}

func words(description string) clusterv1.JSONSchemaProps {
	return clusterv1.JSONSchemaProps{
		Type: "object", Description: description, MaxProperties: new(int64(64)),
		AdditionalProperties: &clusterv1.JSONSchemaProps{Type: "string"},
	}
}

func withDefault(s clusterv1.JSONSchemaProps, value any) clusterv1.JSONSchemaProps {
	s.Default = &values(value)[0]
	return s
}

func values(list ...any) []apiextensionsv1.JSON {
	encoded := make([]apiextensionsv1.JSON, 0, len(list))
	for _, v := range list {
		b, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("encoding %v: %v", v, err)) // The values are constants of this file.
		}
		encoded = append(encoded, apiextensionsv1.JSON{Raw: b})
	}
	return encoded
}
