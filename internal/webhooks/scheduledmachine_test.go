// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/webhooks"
)

func machine(change func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
	m := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Name: "box"}}
	m.Spec = v1alpha1.ScheduledMachineSpec{
		Schedule:           v1alpha1.Schedule{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}},
		ClusterName:        "lab",
		BootstrapSpec:      v1alpha1.EmbeddedObject{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig"},
		InfrastructureSpec: v1alpha1.EmbeddedObject{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachine"},
	}
	if change != nil {
		change(m)
	}
	return m
}

func badHours(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = []string{"9:30"} }

func TestUpdate(t *testing.T) {
	now := metav1.Unix(1, 0)
	cases := map[string]struct {
		reason   string
		old, new *v1alpha1.ScheduledMachine
		want     string
	}{
		"Good":      {"Nothing is wrong.", machine(nil), machine(nil), ""},
		"NewlyBad":  {"A bad value is refused when it is written.", machine(nil), machine(badHours), `spec.schedule.hoursOfDay[0]: Invalid value: "9:30"`},
		"Immutable": {"A machine does not change clusters.", machine(nil), machine(func(m *v1alpha1.ScheduledMachine) { m.Spec.ClusterName = "other" }), "spec.clusterName"},
		"KnownBad": {
			"An emergency reclaim must be able to turn off what was stored before the rule existed.",
			machine(badHours),
			machine(func(m *v1alpha1.ScheduledMachine) { badHours(m); m.Spec.Schedule.Enabled = new(false) }), "",
		},
		"KnownBadAndWorse": {
			"What is wrong anew is refused all the same.",
			machine(badHours),
			machine(func(m *v1alpha1.ScheduledMachine) { badHours(m); m.Spec.NodeDrainTimeout = "5d" }), "spec.nodeDrainTimeout",
		},
		"Going": {
			"The removal of the finalizer is an update, and deletion is never refused.",
			machine(nil),
			machine(func(m *v1alpha1.ScheduledMachine) { badHours(m); m.DeletionTimestamp = &now }), "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := hook().ValidateUpdate(t.Context(), tc.old, tc.new)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s\nrefused: %v", tc.reason, err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s\ngot %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}

func TestCreateWarns(t *testing.T) {
	m := machine(func(m *v1alpha1.ScheduledMachine) {
		m.Spec.Schedule.DaysOfWeek = nil
		m.Spec.KillIfCommands = []string{"idea", "/"}
		m.Spec.BootstrapSpec.Kind = "OtherConfig"
		m.Spec.InfrastructureSpec.APIVersion = "infrastructure.cluster.x-k8s.io/v1alpha1"
	})
	warnings, err := hook().ValidateCreate(t.Context(), m)
	want := []string{
		"spec.schedule: ", `spec.killIfCommands[1]: "/" `, "spec.bootstrapSpec.kind: OtherConfig of bootstrap.cluster.x-k8s.io/v1beta2 is not installed",
		"spec.infrastructureSpec.kind: DevMachine of infrastructure.cluster.x-k8s.io/v1alpha1 is not served in this version: write apiVersion infrastructure.cluster.x-k8s.io/v1beta2",
	}
	if err != nil || len(warnings) != len(want) {
		t.Fatalf("got %q, %v, want %d warnings", warnings, err, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(warnings[i], want[i]) {
			t.Errorf("got %q, want %q…", warnings[i], want[i])
		}
	}
}

// TestKindsThatAreServed judges what only the API server knows.
func TestKindsThatAreServed(t *testing.T) {
	infra := func(kind string) *v1alpha1.ScheduledMachine {
		return machine(func(m *v1alpha1.ScheduledMachine) { m.Spec.InfrastructureSpec.Kind = kind })
	}
	cloned := func(kind string) *v1alpha1.ScheduledMachine {
		return machine(func(m *v1alpha1.ScheduledMachine) {
			ref := v1alpha1.TemplateReference{APIVersion: m.Spec.InfrastructureSpec.APIVersion, Kind: kind, Name: "desk"}
			m.Spec.InfrastructureSpec, m.Spec.InfrastructureTemplateRef = v1alpha1.EmbeddedObject{}, ref
		})
	}
	cases := map[string]struct {
		reason   string
		w        *webhooks.ScheduledMachine
		old, new *v1alpha1.ScheduledMachine
		want     string
		warns    int
	}{
		"Namespaced":       {"It is an ordinary kind.", hook(), nil, infra("DevMachine"), "", 0},
		"Global":           {"It would be everybody's.", hook(), nil, infra("GlobalMachine"), "spec.infrastructureSpec.kind: Invalid value: \"GlobalMachine\": kind GlobalMachine.infrastructure.cluster.x-k8s.io is not namespaced", 0},
		"GlobalTemplate":   {"And so would be what is made from it.", hook(), nil, cloned("GlobalMachineTemplate"), "spec.infrastructureTemplateRef.kind: Invalid value: \"GlobalMachineTemplate\": kind GlobalMachine.", 0},
		"Template":         {"Both kinds are served.", hook(), nil, cloned("DevMachineTemplate"), "", 0},
		"ByNameOnly":       {"What is no good by name is refused once.", hook(), nil, infra("List"), "spec.infrastructureSpec.kind: Invalid value: \"List\": must be the kind of the infrastructure machine", 0},
		"NotInstalled":     {"Its provider may come later.", hook(), nil, infra("OtherMachine"), "", 1},
		"CannotBeTold":     {"Unknown is not wrong.", &webhooks.ScheduledMachine{Mapper: silent{hook().Mapper}}, nil, infra("GlobalMachine"), "", 2},
		"StoredBefore":     {"What was stored before can be edited.", hook(), infra("GlobalMachine"), infra("GlobalMachine"), "", 0},
		"BecomesGlobal":    {"An edit is no way around it.", hook(), infra("DevMachine"), infra("GlobalMachine"), "is not namespaced", 0},
		"StoredByNameOnly": {"The same of a name.", hook(), infra("OddHost"), infra("OddHost"), "", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			warnings, err := tc.w.ValidateCreate(t.Context(), tc.new)
			if tc.old != nil {
				warnings, err = tc.w.ValidateUpdate(t.Context(), tc.old, tc.new)
			}
			switch {
			case (err == nil) != (tc.want == ""), err != nil && (!apierrors.IsInvalid(err) || strings.Count(err.Error(), "Invalid value") != 1 || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s\ngot %v, want %q", tc.reason, err, tc.want)
			case len(warnings) != tc.warns:
				t.Errorf("%s\ngot %q, want %d warnings", tc.reason, warnings, tc.warns)
			}
		})
	}
}

// hook is the webhook of an API server with some kinds.
func hook() *webhooks.ScheduledMachine {
	infrastructure := schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{infrastructure})
	for _, kind := range []string{"DevMachine", "DevMachineTemplate", "GlobalMachineTemplate"} {
		mapper.Add(infrastructure.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(infrastructure.WithKind("GlobalMachine"), meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfig"}, meta.RESTScopeNamespace)
	return &webhooks.ScheduledMachine{Mapper: mapper}
}

// silent is an API server whose discovery does not answer.
type silent struct{ meta.RESTMapper }

func (silent) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no answer")
}

func TestDeleteIsNeverRefused(t *testing.T) {
	if _, err := hook().ValidateDelete(t.Context(), machine(badHours)); err != nil {
		t.Error(err)
	}
}
