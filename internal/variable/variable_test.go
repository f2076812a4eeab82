// SPDX-License-Identifier: Apache-2.0

package variable_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
)

const templates = `"bootstrapTemplateRef":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","name":"desks"},` +
	`"infrastructureTemplateRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachineTemplate","name":"desks"}`

const always = `"schedule":{"daysOfWeek":["mon-sun"],"hoursOfDay":["0-23"]}`

// item returns an item with a name and more fields.
func item(name, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"name":%q,%s,%s%s}`, name, always, templates, more)
}

func list(items ...string) string { return "[" + strings.Join(items, ",") + "]" }

func TestParse(t *testing.T) {
	const cluster = "farm"
	cases := map[string]struct {
		reason, value string
		want          []string
	}{
		"Empty": {"Nobody is asked for.", "[]", nil},
		"Good":  {"Every field of a spec that is not a person's.", list(item("a", `"priority":7,"gracefulShutdownTimeout":"1m","nodeDrainTimeout":"30s","killIfCommands":["java"],"resumeAfterReclaim":"OnResume","reclaimHold":"Kill","nodeTaints":[{"key":"a","effect":"NoSchedule"}],"machineTemplate":{"labels":{"x":"y"}}`), item("b", "")), nil},
		"Null":  {"It is not said that there are none.", "null", []string{"scheduledMachines: Invalid value: must be a list"}},
		"Empty text": {
			"The same.", "", []string{"scheduledMachines: Invalid value: must be a list"},
		},
		"Object":   {"A single machine is a list, too.", item("a", ""), []string{"scheduledMachines: Invalid value: must be a list"}},
		"Hold":     {"The API server would refuse it later.", list(item("a", `"reclaimHold":"Stop"`)), []string{`scheduledMachines[0].reclaimHold: Unsupported value: "Stop": supported values: "None", "Freeze", "FreezeOnly", "Kill"`}},
		"TooMany":  {"The Cluster object is written as a whole.", list(strings.Split(strings.Repeat("{} ", 250)+"{}", " ")...), []string{"scheduledMachines: Too many: 251: must have at most 250 items"}},
		"Unknown":  {"A misspelt field must not be met as its default.", list(item("a", `"killCommands":["java"]`)), []string{`scheduledMachines[0]: Forbidden: unknown field "killCommands"`}},
		"Case":     {"Names of fields are what they are.", list(item("a", `"Priority":7`)), []string{`scheduledMachines[0]: Forbidden: unknown field "Priority"`}},
		"Enabled":  {"A person, or an owner, turns a machine off; the topology does not turn it on.", list(`{"name":"a","schedule":{"enabled":true},` + templates + `}`), []string{`scheduledMachines[0]: Forbidden: unknown field "schedule.enabled"`}},
		"Kill":     {"It is a person's.", list(item("a", `"killSwitch":true`)), []string{`scheduledMachines[0]: Forbidden: unknown field "killSwitch"`}},
		"Type":     {"What cannot be read is not guessed.", list(item("a", `"priority":"high"`)), []string{"scheduledMachines[0]: Invalid value: json: cannot unmarshal string into Go struct field Machine.priority of type int32"}},
		"NoName":   {"It could not be told from others.", list(item("", "")), []string{"scheduledMachines[0].name: Required value"}},
		"BadName":  {"It becomes part of a name.", list(item("Desk_1", "")), []string{`scheduledMachines[0].name: Invalid value: "Desk_1"`}},
		"LongName": {"The ScheduledMachine's name becomes a label.", list(item(strings.Repeat("a", 59), "")), []string{`scheduledMachines[0].name: Invalid value: "` + strings.Repeat("a", 59) + `": its ScheduledMachine would be called farm-aaa`}},
		"Twice":    {"There can be one of a name.", list(item("a", ""), item("b", ""), item("a", "")), []string{`scheduledMachines[2].name: Duplicate value: "a"`}},
		"BadHours": {"The webhook would refuse it.", list(item("a", ""), `{"name":"b","schedule":{"hoursOfDay":["25"]},`+templates+`}`), []string{`scheduledMachines[1].schedule.hoursOfDay[0]: Invalid value: "25": Failed to parse hours: Hour must be 0-23, got: 25`}},
		"NoTemplates": {
			"There is nothing to make.", list(`{"name":"a",` + always + `}`),
			[]string{"scheduledMachines[0].bootstrapTemplateRef: Required value: name a template", "scheduledMachines[0].infrastructureTemplateRef: Required value: name a template"},
		},
		"Everything": {
			"A person should not meet them one by one.", list(item("a", `"x":1`), item("b", `"nodeDrainTimeout":"5d"`), item("b", "")),
			[]string{"scheduledMachines[0]: Forbidden", "scheduledMachines[1].nodeDrainTimeout: Invalid value", "scheduledMachines[2].name: Duplicate value"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			machines, errs := variable.Parse([]byte(tc.value), cluster)
			if len(errs) != len(tc.want) {
				t.Fatalf("%s\ngot %d problems, want %d: %v", tc.reason, len(errs), len(tc.want), errs)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(errs[i].Error(), want) {
					t.Errorf("%s\ngot:  %s\nwant: %s…", tc.reason, errs[i].Error(), want)
				}
			}
			if len(errs) > 0 && machines != nil {
				t.Errorf("%s\nhalf of it is used: %+v", tc.reason, machines)
			}
		})
	}
}

func TestOf(t *testing.T) {
	cluster := &clusterv1.Cluster{}
	if _, found := variable.Of(cluster); found {
		t.Error("there is no topology")
	}
	cluster.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: "other"}, {Name: variable.Name, Value: apiextensionsv1.JSON{Raw: []byte("[]")}}}
	if value, found := variable.Of(cluster); !found || string(value) != "[]" {
		t.Errorf("got %q, %t", value, found)
	}
}

// TestSpecHasEveryField compares JSON, so that the test detects a field that Spec does not copy.
func TestSpecHasEveryField(t *testing.T) {
	text := item("a", `"priority":7,"gracefulShutdownTimeout":"1m","nodeDrainTimeout":"30s","killIfCommands":["java"],"resumeAfterReclaim":"OnResume","reclaimHold":"Kill","nodeTaints":[{"key":"a","effect":"NoSchedule"}],"machineTemplate":{"labels":{"x":"y"}}`)
	machines, errs := variable.Parse([]byte(list(text)), "farm")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var want, got map[string]any
	b, err := json.Marshal(machines[0].Spec("farm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	delete(want, "name")
	want["clusterName"] = "farm"
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got:  %v\nwant: %v", got, want)
	}
}
