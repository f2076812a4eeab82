// SPDX-License-Identifier: Apache-2.0

// Package clusterclass tests that Cluster API validates the variable scheduledMachines as 5-Spot does. It calls the
// code of Cluster API's webhooks, without a cluster.
package clusterclass_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/topologymutation"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	featuretesting "k8s.io/component-base/featuregate/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/yaml"
)

const refs = `"bootstrapTemplateRef":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfigTemplate","name":"desks"},` +
	`"infrastructureTemplateRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachineTemplate","name":"desks"}`

// full has every field.
const full = `{"name":"a","schedule":{"daysOfWeek":["mon-fri"],"hoursOfDay":["19-6"],"timezone":"Europe/Zurich"},` + refs + `,
	"machineTemplate":{"labels":{"x":"y"},"annotations":{"x":"y"}},"priority":7,"gracefulShutdownTimeout":"1m","nodeDrainTimeout":"30s",
	"killIfCommands":["java"],"nodeTaints":[{"key":"a","value":"b","effect":"NoSchedule"}]}`

const short = `{"name":"b","schedule":{},` + refs + `}`

// class is a ClusterClass that has the variable.
func class(v clusterv1.ClusterClassVariable) *clusterv1.ClusterClass {
	name := func(kind string) clusterv1.ClusterClassTemplateReference {
		return clusterv1.ClusterClassTemplateReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: kind, Name: "x"}
	}
	c := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: "desks"}}
	c.Spec.Infrastructure.TemplateRef, c.Spec.ControlPlane.TemplateRef = name("DevClusterTemplate"), name("DevControlPlaneTemplate")
	c.Spec.Variables = []clusterv1.ClusterClassVariable{v}
	c.Status.Variables = []clusterv1.ClusterClassStatusVariable{{Name: v.Name, Definitions: []clusterv1.ClusterClassStatusVariableDefinition{
		{From: clusterv1.VariableDefinitionFromInline, Required: v.Required, Schema: v.Schema},
	}}}
	return c
}

func TestClusterAPIAcceptsTheVariable(t *testing.T) {
	featuretesting.SetFeatureGateDuringTest(t, feature.Gates, feature.ClusterTopology, true)
	if _, err := (&admission.ClusterClass{}).ValidateCreate(t.Context(), class(topologymutation.Variable())); err != nil {
		t.Error(err)
	}
}

// judged returns the value of the variable with its defaults, or Cluster API's error.
func judged(t *testing.T, value string) (string, error) {
	t.Helper()
	return judgedBy(t, topologymutation.Variable(), value)
}

func judgedBy(t *testing.T, definition clusterv1.ClusterClassVariable, value string) (string, error) {
	t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: "batch"}}
	cluster.Spec.Topology.Variables = []clusterv1.ClusterVariable{{Name: variable.Name, Value: apiextensionsv1.JSON{Raw: []byte(value)}}}
	errs := (&admission.Cluster{}).DefaultAndValidateVariables(t.Context(), cluster, nil, class(definition))
	return string(cluster.Spec.Topology.Variables[0].Value.Raw), errs.ToAggregate()
}

func TestClusterAPIJudgesValues(t *testing.T) {
	with := func(from, to string) string {
		if !strings.Contains(full, from) {
			t.Fatalf("no %s", from)
		}
		return "[" + strings.Replace(full, from, to, 1) + "]"
	}
	for name, tc := range map[string]struct{ value, want string }{
		"Good":        {"[" + full + "," + short + "]", ""},
		"Empty":       {"[]", ""},
		"NoList":      {full, "must be of type array"},
		"NoName":      {with(`"name":"a",`, ``), "[0].name: Required value"},
		"BadName":     {with(`"name":"a"`, `"name":"A b"`), "[0].name"},
		"Unknown":     {with(`"priority"`, `"prio"`), `[0].prio`},
		"Switch":      {with(`"timezone"`, `"enabled":true,"timezone"`), `enabled`},
		"Priority":    {with(`:7`, `:256`), "[0].priority"},
		"Timeout":     {with(`"1m"`, `"1d"`), "[0].gracefulShutdownTimeout"},
		"Kind":        {with(`KubeadmConfigTemplate`, `KubeadmConfig`), "[0].bootstrapTemplateRef.kind"},
		"Group":       {with(`infrastructure.cluster.x-k8s.io/v1beta2`, `apps/v1`), "[0].infrastructureTemplateRef.apiVersion"},
		"Effect":      {with(`NoSchedule`, `Never`), "[0].nodeTaints[0].effect"},
		"NoTemplates": {`[{"name":"a","schedule":{}}]`, "bootstrapTemplateRef: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := judged(t, tc.value)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if _, errs := variable.Parse([]byte(tc.value), "batch"); (len(errs) == 0) != (err == nil) {
				t.Errorf("the schema says %v, the controller %v", err, errs)
			}
		})
	}
}

func TestDefaultsAreThoseOfScheduledMachines(t *testing.T) {
	got, err := judged(t, "["+short+"]")
	if err != nil {
		t.Fatal(err)
	}
	machines, errs := variable.Parse([]byte(got), "batch")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	m := machines[0]
	if m.Schedule.Timezone != "UTC" || m.Priority == nil || *m.Priority != 50 || m.GracefulShutdownTimeout != "5m" || m.NodeDrainTimeout != "5m" {
		t.Errorf("%s", got)
	}
}

// TestExamplesWork checks the user page: its ClusterClass with its Cluster, and its Cluster with the full definition.
func TestExamplesWork(t *testing.T) {
	featuretesting.SetFeatureGateDuringTest(t, feature.Gates, feature.ClusterTopology, true)
	page, err := os.ReadFile("../../docs/clusterclass.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented clusterv1.ClusterClass
	var cluster clusterv1.Cluster
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1) {
		into := any(&cluster)
		switch text := string(block[1]); {
		case !strings.Contains(text, "kind:"):
			continue // a part
		case strings.Contains(text, "kind: ClusterClass"):
			into = &documented
		}
		if err := yaml.UnmarshalStrict(block[1], into); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (&admission.ClusterClass{}).ValidateCreate(t.Context(), &documented); err != nil {
		t.Error(err)
	}
	value, found := variable.Of(&cluster)
	if !found || len(documented.Spec.Variables) != 1 {
		t.Fatal("the examples do not have the variable")
	}
	for _, definition := range []clusterv1.ClusterClassVariable{documented.Spec.Variables[0], topologymutation.Variable()} {
		if _, err := judgedBy(t, definition, string(value)); err != nil {
			t.Error(err)
		}
	}
}
