// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// good returns a valid ScheduledMachine, changed by change.
func good(change func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
	m := &v1alpha1.ScheduledMachine{}
	m.Name = "box"
	m.Spec = v1alpha1.ScheduledMachineSpec{
		Schedule:           v1alpha1.Schedule{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}, Timezone: "Europe/Zurich"},
		ClusterName:        "lab",
		BootstrapSpec:      v1alpha1.EmbeddedObject{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig"},
		InfrastructureSpec: v1alpha1.EmbeddedObject{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachine"},
	}
	if change != nil {
		change(m)
	}
	return m
}

// templates replaces the inline specs with template references; the bootstrap template has the given kind.
func templates(bootstrapKind string) func(*v1alpha1.ScheduledMachine) {
	return func(m *v1alpha1.ScheduledMachine) {
		m.Spec.BootstrapSpec, m.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{}, v1alpha1.EmbeddedObject{}
		m.Spec.BootstrapTemplateRef = v1alpha1.TemplateReference{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: bootstrapKind, Name: "desk"}
		m.Spec.InfrastructureTemplateRef = v1alpha1.TemplateReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachineTemplate", Name: "desk"}
	}
}

func TestScheduledMachine(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.ScheduledMachine)
		want   []string
	}{
		"Good":                   {"Nothing is wrong.", nil, nil},
		"DefaultsMayBeMissing":   {"The API server fills them in; topology variables do not.", func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.Timezone = "" }, nil},
		"EmptyScheduleIsAllowed": {"It means never.", func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.DaysOfWeek = nil }, nil},
		"DisabledHidesNothing": {
			"A bad value must not wait for the morning it is turned on.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.Schedule.Enabled, m.Spec.Schedule.DaysOfWeek = new(false), []string{"someday"}
			},
			[]string{`spec.schedule.daysOfWeek[0]: Invalid value: "someday": Failed to parse weekdays: Invalid day: someday`},
		},
		"EveryProblemAtOnce": {
			"A person should not meet them one by one.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.Schedule.HoursOfDay = []string{"9-17", "25"}
				m.Spec.Schedule.Timezone = "Mars/Olympus"
				m.Spec.NodeDrainTimeout = "5d"
				m.Spec.Priority = new(int32(256))
			},
			[]string{
				`spec.schedule.hoursOfDay[1]: Invalid value: "25": Failed to parse hours: Hour must be 0-23, got: 25`,
				`spec.schedule.timezone: Invalid value: "Mars/Olympus": Invalid timezone: Mars/Olympus`,
				`spec.priority: Invalid value: 256: must be between 0 and 255`,
				`spec.nodeDrainTimeout: Invalid value: "5d": Invalid duration unit: 'd'`,
			},
		},
		"NameTooLong": {
			"It becomes a label's value.", func(m *v1alpha1.ScheduledMachine) { m.Name = strings.Repeat("a", 64) },
			[]string{"metadata.name: Too long: may not be more than 63 bytes"},
		},
		"LabelValue": {
			"The Machine would be refused at 9 a.m.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.MachineTemplate.Labels = map[string]string{"team": "no spaces"}
			},
			[]string{`spec.machineTemplate.labels[team]: Invalid value: "no spaces"`},
		},
		"AnnotationKey": {
			"Reserved for this project.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.MachineTemplate.Annotations = map[string]string{"5spot.finos.org/x": ""}
			},
			[]string{"spec.machineTemplate.annotations[5spot.finos.org/x]: Forbidden: keys that begin with 5spot.finos.org/ are reserved"},
		},
		"Taints": {
			"Key and effect identify a taint, and the same key may have two effects.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.NodeTaints = []v1alpha1.NodeTaint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Value: "x_y", Effect: "NoExecute"}}
			},
			nil,
		},
		"TaintTwice": {
			"A Node cannot have it twice.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.NodeTaints = []v1alpha1.NodeTaint{{Key: "a", Value: "1", Effect: "NoSchedule"}, {Key: "a", Value: "2", Effect: "NoSchedule"}}
			},
			[]string{`spec.nodeTaints[1]: Duplicate value: "a:NoSchedule"`},
		},
		"TooManyTaints": {
			"The list is bounded.",
			func(m *v1alpha1.ScheduledMachine) {
				for i := range 33 {
					m.Spec.NodeTaints = append(m.Spec.NodeTaints, v1alpha1.NodeTaint{Key: fmt.Sprintf("a%d", i), Effect: "NoSchedule"})
				}
			},
			[]string{"spec.nodeTaints: Too many: 33: must have at most 32 items"},
		},
		"NoKind": {
			"There is nothing to make.", func(m *v1alpha1.ScheduledMachine) { m.Spec.BootstrapSpec.Kind = "" },
			[]string{"spec.bootstrapSpec.kind: Required value"},
		},
		"Templates": {"They stand in for the specs.", templates("KubeadmConfigTemplate"), nil},
		"OneOfEach": {
			"The two parts are distinguished.",
			func(m *v1alpha1.ScheduledMachine) {
				spec := m.Spec.BootstrapSpec
				templates("KubeadmConfigTemplate")(m)
				m.Spec.BootstrapSpec, m.Spec.BootstrapTemplateRef = spec, v1alpha1.TemplateReference{}
			}, nil,
		},
		"NeitherSpecNorTemplate": {
			"There is nothing to create, and the message names both fields.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.BootstrapSpec, m.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{}, v1alpha1.EmbeddedObject{}
			},
			[]string{
				"spec.bootstrapSpec: Required value: describe the bootstrap config, or name its template in bootstrapTemplateRef",
				"spec.infrastructureSpec: Required value: describe the infrastructure machine, or name its template in infrastructureTemplateRef",
			},
		},
		"SpecAndTemplate": {
			"It is ambiguous which one counts.",
			func(m *v1alpha1.ScheduledMachine) {
				m.Spec.InfrastructureTemplateRef = v1alpha1.TemplateReference{
					APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachineTemplate", Name: "desk",
				}
			},
			[]string{"spec.infrastructureTemplateRef: Forbidden: must not be set together with infrastructureSpec: keep one of them"},
		},
		"NoKindOfATemplate": {
			"The kind of the object is what is left without the word.", templates("KubeadmConfig"),
			[]string{`spec.bootstrapTemplateRef.kind: Invalid value: "KubeadmConfig": must be the kind of a template`},
		},
		"NothingIsLeft": {
			"That is no kind.", templates("Template"),
			[]string{`spec.bootstrapTemplateRef.kind: Invalid value: "Template": must be the kind of a template`},
		},
		"EmptyTemplate": {
			"Every field counts.",
			func(m *v1alpha1.ScheduledMachine) {
				templates("")(m)
				m.Spec.BootstrapTemplateRef.Name = ""
				m.Spec.InfrastructureTemplateRef.Name = "No Name"
			},
			[]string{
				"spec.bootstrapTemplateRef.kind: Required value", "spec.bootstrapTemplateRef.name: Required value",
				`spec.infrastructureTemplateRef.name: Invalid value: "No Name"`,
			},
		},
		"GroupOfATemplate": {
			"The same groups as for the specs.",
			func(m *v1alpha1.ScheduledMachine) {
				templates("KubeadmConfigTemplate")(m)
				m.Spec.InfrastructureTemplateRef.APIVersion = "apps/v1"
			},
			[]string{`spec.infrastructureTemplateRef.apiVersion: Invalid value: "apps/v1": must be of group infrastructure.cluster.x-k8s.io or k0smotron.io`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := validation.ScheduledMachine(good(tc.change))
			if len(errs) != len(tc.want) {
				t.Fatalf("%s\ngot %d problems, want %d: %v", tc.reason, len(errs), len(tc.want), errs)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(errs[i].Error(), want) {
					t.Errorf("%s\ngot:  %s\nwant: %s…", tc.reason, errs[i].Error(), want)
				}
			}
		})
	}
}

type vectors struct {
	TemplateKey []struct {
		Key     string
		Allowed bool
	} `json:"template_key"`
	APIGroup []struct {
		Side, APIVersion string
		Allowed          bool
	} `json:"api_group"`
	ClusterName []struct {
		Name  string
		Label bool
	} `json:"cluster_name"`
	TaintKey []struct {
		Key   string
		Valid bool
	} `json:"taint_key"`
	TaintValue []struct {
		Value string
		Valid bool
	} `json:"taint_value"`
	TaintList []struct {
		Taints [][3]*string
		Valid  bool
	} `json:"taint_list"`
	KillIfCommands []struct {
		Value         []string
		Count         int
		ItemLen       int `json:"item_len"`
		Valid         bool
		ErrorMentions string `json:"error_mentions"`
	} `json:"kill_if_commands"`
}

func load(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectors(t *testing.T) {
	v := load(t)
	check := func(what string, valid bool, m *v1alpha1.ScheduledMachine) {
		t.Helper()
		errs := validation.ScheduledMachine(m)
		if diff := cmp.Diff(valid, len(errs) == 0); diff != "" {
			t.Errorf("%s: valid: -want, +got:\n%s%v", what, diff, errs)
		}
	}
	for _, c := range v.TemplateKey {
		check("label "+c.Key, c.Allowed, good(func(m *v1alpha1.ScheduledMachine) {
			m.Spec.MachineTemplate.Labels = map[string]string{c.Key: "x"}
		}))
		check("annotation "+c.Key, c.Allowed, good(func(m *v1alpha1.ScheduledMachine) {
			m.Spec.MachineTemplate.Annotations = map[string]string{c.Key: "x"}
		}))
	}
	for _, c := range v.APIGroup {
		check(c.Side+" "+c.APIVersion, c.Allowed, good(func(m *v1alpha1.ScheduledMachine) {
			if c.Side == "bootstrap" {
				m.Spec.BootstrapSpec.APIVersion = c.APIVersion
			} else {
				m.Spec.InfrastructureSpec.APIVersion = c.APIVersion
			}
		}))
	}
	for _, c := range v.ClusterName {
		name := c.Name
		if rest, ok := strings.CutPrefix(name, "a*"); ok {
			name = strings.Repeat("a", map[string]int{"63": 63, "64": 64}[rest])
		}
		check("cluster "+c.Name, c.Label, good(func(m *v1alpha1.ScheduledMachine) { m.Spec.ClusterName = name }))
	}
	for _, c := range v.TaintKey {
		check("taint key "+c.Key, c.Valid, tainted(v1alpha1.NodeTaint{Key: spell(t, c.Key), Effect: "NoSchedule"}))
	}
	for _, c := range v.TaintValue {
		check("taint value "+c.Value, c.Valid, tainted(v1alpha1.NodeTaint{Key: "a", Value: spell(t, c.Value), Effect: "NoSchedule"}))
	}
	for _, c := range v.TaintList {
		var list []v1alpha1.NodeTaint
		for _, v := range c.Taints {
			list = append(list, v1alpha1.NodeTaint{Key: *v[0], Effect: corev1.TaintEffect(*v[2])})
		}
		check("taints", c.Valid, tainted(list...))
	}
	for _, c := range v.KillIfCommands {
		patterns := c.Value
		for range c.Count {
			patterns = append(patterns, "java")
		}
		if c.ItemLen > 0 {
			patterns = []string{strings.Repeat("x", c.ItemLen)}
		}
		m := good(func(m *v1alpha1.ScheduledMachine) { m.Spec.KillIfCommands = patterns })
		check("killIfCommands", c.Valid, m)
		if c.ErrorMentions != "" && !strings.Contains(validation.ScheduledMachine(m).ToAggregate().Error(), c.ErrorMentions) {
			t.Errorf("does not mention %s: %v", c.ErrorMentions, validation.ScheduledMachine(m))
		}
	}
}

func tainted(taints ...v1alpha1.NodeTaint) *v1alpha1.ScheduledMachine {
	return good(func(m *v1alpha1.ScheduledMachine) { m.Spec.NodeTaints = taints })
}

// spell expands the abbreviations of the vectors, such as a*63 and (a*63)/a.
func spell(t *testing.T, s string) string {
	t.Helper()
	if s == "(254-char dns prefix)/a" {
		return strings.Repeat("a.", 126) + "aa/a"
	}
	abbreviated := regexp.MustCompile(`\(?a\*(\d+)\)?`)
	return abbreviated.ReplaceAllStringFunc(s, func(m string) string {
		n, err := strconv.Atoi(abbreviated.FindStringSubmatch(m)[1])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Repeat("a", n)
	})
}

func TestReservedTaintKeys(t *testing.T) {
	for _, key := range []string{
		"5spot.finos.org/x", "kubernetes.io/x", "node.kubernetes.io/unschedulable", "node-role.kubernetes.io/control-plane",
		"node.cluster.x-k8s.io/uninitialized",
	} {
		errs := validation.ScheduledMachine(tainted(v1alpha1.NodeTaint{Key: key, Effect: "NoSchedule"}))
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec.nodeTaints[0].key: Forbidden: keys that begin with ") {
			t.Errorf("%s: got %v, want it refused as reserved", key, errs)
		}
	}
}
