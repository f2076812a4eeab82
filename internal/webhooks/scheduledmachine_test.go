// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
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
		"spec.schedule: ", `spec.killIfCommands[1]: "/" `, "spec.bootstrapSpec.kind: kind OtherConfig.bootstrap.cluster.x-k8s.io is not installed: install its provider",
		"spec.infrastructureSpec.kind: version v1alpha1 of kind DevMachine.infrastructure.cluster.x-k8s.io is not served: name one of [v1beta2] in apiVersion; until then the machine does not join",
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

// TestKindsThatAreServed checks rules that need the kinds of the API server.
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
		"Global":           {"It would belong to all namespaces.", hook(), nil, infra("GlobalMachine"), "spec.infrastructureSpec.kind: Invalid value: \"GlobalMachine\": kind GlobalMachine.infrastructure.cluster.x-k8s.io cannot be used: its objects are not namespaced", 0},
		"GlobalTemplate":   {"And so would be what is made from it.", hook(), nil, cloned("GlobalMachineTemplate"), "spec.infrastructureTemplateRef.kind: Invalid value: \"GlobalMachineTemplate\": kind GlobalMachine.", 0},
		"Template":         {"Both kinds are served.", hook(), nil, cloned("DevMachineTemplate"), "", 0},
		"ByNameOnly":       {"What is no good by name is refused once.", hook(), nil, infra("List"), "spec.infrastructureSpec.kind: Invalid value: \"List\": must be the kind of the infrastructure machine", 0},
		"NotInstalled":     {"Its provider may come later.", hook(), nil, infra("OtherMachine"), "", 1},
		"CannotBeTold":     {"Unknown is not wrong.", unreadable(), nil, infra("GlobalMachine"), "", 2},
		"StoredBefore":     {"What was stored before can be edited.", hook(), infra("GlobalMachine"), infra("GlobalMachine"), "", 0},
		"BecomesGlobal":    {"An edit is no way around it.", hook(), infra("DevMachine"), infra("GlobalMachine"), "not namespaced", 0},
		"StoredByNameOnly": {"The same of a name.", hook(), infra("OddHost"), infra("OddHost"), "", 0},
	}
	for name, tc := range cases {
		synctest.Test(t, func(t *testing.T) {
			warnings, err := tc.w.ValidateCreate(t.Context(), tc.new)
			if tc.old != nil {
				warnings, err = tc.w.ValidateUpdate(t.Context(), tc.old, tc.new)
			}
			switch {
			case (err == nil) != (tc.want == ""), err != nil && (!apierrors.IsInvalid(err) || strings.Count(err.Error(), "Invalid value") != 1 || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: %s\ngot %v, want %q", name, tc.reason, err, tc.want)
			case len(warnings) != tc.warns:
				t.Errorf("%s: %s\ngot %q, want %d warnings", name, tc.reason, warnings, tc.warns)
			}
		})
	}
}

// definitions are the kinds of an API server. The value reports whether the kind is namespaced.
type definitions map[string]bool

func (d definitions) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	for kind, namespaced := range d {
		group := "infrastructure.cluster.x-k8s.io"
		if strings.HasSuffix(kind, "Config") {
			group = "bootstrap.cluster.x-k8s.io"
		}
		if key.Name != contract.CalculateCRDName(group, kind) {
			continue
		}
		crd := obj.(*apiextensionsv1.CustomResourceDefinition)
		crd.Spec.Names.Kind, crd.Spec.Scope = kind, apiextensionsv1.ClusterScoped
		if namespaced {
			crd.Spec.Scope = apiextensionsv1.NamespaceScoped
		}
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1beta2", Served: true}}
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		return nil
	}
	return apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), key.Name)
}

func (definitions) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("lists are not served")
}

// hook returns the webhook for an API server with some kinds.
func hook() *webhooks.ScheduledMachine {
	d := definitions{"DevMachine": true, "DevMachineTemplate": true, "GlobalMachineTemplate": true, "GlobalMachine": false, "KubeadmConfig": true}
	return &webhooks.ScheduledMachine{Kinds: kinds.Resolver{Cached: d, Live: d}}
}

// unreadable returns the webhook for an API server that does not respond.
func unreadable() *webhooks.ScheduledMachine {
	return &webhooks.ScheduledMachine{Kinds: kinds.Resolver{Cached: definitions{}, Live: silent{}}}
}

// silent is an API server that never responds.
type silent struct{ client.Reader }

func (silent) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestASlowAPIServerRefusesNothing checks that the webhook responds before the API server's timeout of ten
// seconds. Otherwise even the kill switch could not be set.
func TestASlowAPIServerRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		off := machine(func(m *v1alpha1.ScheduledMachine) { m.Spec.KillSwitch = true })
		warnings, err := unreadable().ValidateUpdate(t.Context(), machine(nil), off)
		if took := time.Since(begun); err != nil || len(warnings) != 2 || took > 5*time.Second {
			t.Errorf("got %q, %v after %v", warnings, err, took)
		}
	})
}

func TestDeleteIsNeverRefused(t *testing.T) {
	if _, err := hook().ValidateDelete(t.Context(), machine(badHours)); err != nil {
		t.Error(err)
	}
}
