// SPDX-License-Identifier: Apache-2.0

package topologymutation_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/topologymutation"
)

const refs = `"bootstrapTemplateRef":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","name":"desks"},` +
	`"infrastructureTemplateRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachineTemplate","name":"desks"}`

// full has every field.
const full = `{"name":"a","schedule":{"daysOfWeek":["mon-fri"],"hoursOfDay":["19-6"],"timezone":"Europe/Zurich"},` + refs + `,
	"machineTemplate":{"labels":{"x":"y"},"annotations":{"x":"y"}},"priority":7,"gracefulShutdownTimeout":"1m","nodeDrainTimeout":"30s",
	"killIfCommands":["java"],"resumeAfterReclaim":"OnResume","reclaimHold":"Kill","nodeTaints":[{"key":"a","value":"b","effect":"NoSchedule"}]}`

const short = `{"name":"b","schedule":{},` + refs + `}`

// discovered returns the variable from the handler.
func discovered(t *testing.T) clusterv1.ClusterClassVariable {
	t.Helper()
	response := &runtimehooksv1.DiscoverVariablesResponse{}
	topologymutation.DiscoverVariables(t.Context(), &runtimehooksv1.DiscoverVariablesRequest{}, response)
	if response.Status != runtimehooksv1.ResponseStatusSuccess || len(response.Variables) != 1 {
		t.Fatalf("%+v", response)
	}
	return response.Variables[0]
}

// TestSchemaHasEveryField compares the schema with the fields that the controller reads.
func TestSchemaHasEveryField(t *testing.T) {
	machines, errs := variable.Parse([]byte("["+full+"]"), "batch")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	b, err := json.Marshal(machines[0])
	if err != nil {
		t.Fatal(err)
	}
	var object any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	got, want := fieldsOfSchema("", *discovered(t).Schema.OpenAPIV3Schema.Items), fieldsOf("", object)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func fieldsOfSchema(at string, s clusterv1.JSONSchemaProps) []string {
	if s.Items != nil {
		return fieldsOfSchema(at+"[]", *s.Items)
	}
	if len(s.Properties) == 0 {
		return []string{at}
	}
	var found []string
	for name, p := range s.Properties {
		found = append(found, fieldsOfSchema(at+"."+name, p)...)
	}
	return found
}

func fieldsOf(at string, value any) []string {
	switch v := value.(type) {
	case []any:
		return fieldsOf(at+"[]", v[0])
	case map[string]any:
		if strings.HasSuffix(at, "labels") || strings.HasSuffix(at, "annotations") {
			return []string{at}
		}
		var found []string
		for name, p := range v {
			found = append(found, fieldsOf(at+"."+name, p)...)
		}
		return found
	default:
		return []string{at}
	}
}

func TestGeneratePatchesChangesNothing(t *testing.T) {
	response := &runtimehooksv1.GeneratePatchesResponse{}
	topologymutation.GeneratePatches(t.Context(), &runtimehooksv1.GeneratePatchesRequest{Items: []runtimehooksv1.GeneratePatchesRequestItem{{UID: "x"}}}, response)
	if response.Status != runtimehooksv1.ResponseStatusSuccess || len(response.Items) > 0 {
		t.Errorf("%+v", response)
	}
}

func TestValidateTopology(t *testing.T) {
	is := func(name, value string) runtimehooksv1.Variable {
		return runtimehooksv1.Variable{Name: name, Value: apiextensionsv1.JSON{Raw: []byte(value)}}
	}
	builtin := is(runtimehooksv1.BuiltinsName, `{"cluster":{"name":"`+strings.Repeat("c", 60)+`"}}`)
	badHours := strings.Replace(full, "19-6", "19-24", 1)
	for name, tc := range map[string]struct {
		reason    string
		variables []runtimehooksv1.Variable
		want      string
	}{
		"Absent":   {"The Cluster has no such variable.", []runtimehooksv1.Variable{builtin}, ""},
		"Good":     {"The webhook would take it.", []runtimehooksv1.Variable{is(variable.Name, "["+full+"]")}, ""},
		"BadHours": {"The webhook would refuse it, and says the same.", []runtimehooksv1.Variable{is(variable.Name, "["+short+","+badHours+"]")}, "scheduledMachines[1].schedule.hoursOfDay[0]: Invalid value: \"19-24\""},
		"LongName": {"Names begin with that of the Cluster.", []runtimehooksv1.Variable{builtin, is(variable.Name, `[`+strings.Replace(full, `"a"`, `"desk"`, 1)+`]`)}, "scheduledMachines[0].name: Invalid value: \"desk\""},
		"Null":     {"It is not said that there are none.", []runtimehooksv1.Variable{is(variable.Name, "null")}, "scheduledMachines: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func() *runtimehooksv1.ValidateTopologyResponse {
				response := &runtimehooksv1.ValidateTopologyResponse{}
				topologymutation.ValidateTopology(t.Context(), &runtimehooksv1.ValidateTopologyRequest{Variables: tc.variables}, response)
				return response
			}
			got, again := ask(), ask()
			status := runtimehooksv1.ResponseStatusSuccess
			if tc.want != "" {
				status = runtimehooksv1.ResponseStatusFailure
			}
			if got.Status != status || !strings.HasPrefix(got.Message, tc.want) {
				t.Errorf("%s\ngot %s %q, want %q", tc.reason, got.Status, got.Message, tc.want)
			}
			if fmt.Sprint(got) != fmt.Sprint(again) {
				t.Error("the same question has two answers")
			}
		})
	}
}
