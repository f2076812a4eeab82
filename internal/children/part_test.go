// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

const infrastructureVersion = "infrastructure.cluster.x-k8s.io/v1beta2"

func inline(kind, raw string) func(*v1alpha1.ScheduledMachine) {
	return func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.InfrastructureSpec.Kind, sm.Spec.InfrastructureSpec.Spec.Raw = kind, []byte(raw)
	}
}

func cloned(kind, name string) func(*v1alpha1.ScheduledMachine) {
	return func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{}
		sm.Spec.InfrastructureTemplateRef = v1alpha1.TemplateReference{APIVersion: infrastructureVersion, Kind: kind, Name: name}
	}
}

func TestHashIgnoresKeyOrder(t *testing.T) {
	hash := func(change func(*v1alpha1.ScheduledMachine)) string {
		return children.InfrastructureOf(machineOf(change)).Hash()
	}
	a := hash(inline("X", `{"a":1,"b":[1,2]}`))
	if b := hash(inline("X", `{ "b":[1,2], "a":1 }`)); a != b {
		t.Error("the order of keys counts")
	}
	seen := map[string]bool{a: true}
	for _, other := range []func(*v1alpha1.ScheduledMachine){
		inline("Y", `{"a":1,"b":[1,2]}`), inline("X", `{"a":1,"b":[2,1]}`), inline("X", ``),
		cloned("XTemplate", "a"), cloned("XTemplate", "b"), cloned("YTemplate", "a"),
	} {
		if seen[hash(other)] {
			t.Errorf("%+v has the same hash as another", machineOf(other).Spec)
		}
		seen[hash(other)] = true
	}
}

// TestHashOutlivesAnUpgrade has hashes from version 80609b2. A changed hash would report every running machine
// as edited, and replace it at the next window.
func TestHashOutlivesAnUpgrade(t *testing.T) {
	for raw, want := range map[string]string{
		``:                                     "0d9b0a7f",
		`{"a":1,"b":[1,2]}`:                    "58d8b0a8",
		`{"version":"v1.34.2+k0s.0"}`:          "0b2dcc6d",
		`{"n":123456789012345678901234567890}`: "ded160ac",
		`{"address":"192.0.2.42","port":22,"user":"root","sshKeyRef":{"name":"desk-42"}}`:                                            "926a0668",
		`{"n":-5,"big":9007199254740992,"f":1.5,"e":1e3,"z":1.0,"t":true,"x":null,"s":"<&>","deep":{"l":[{"a":[0,-1,2147483648]}]}}`: "71fb2b56",
	} {
		live := &unstructured.Unstructured{Object: map[string]any{}}
		live.SetAnnotations(map[string]string{v1alpha1.SpecHashAnnotation: want})
		if p := children.InfrastructureOf(machineOf(inline("DevMachine", raw))); !p.MadeFrom(live) {
			t.Errorf("%s: hash is %s, was %s", raw, p.Hash(), want)
		}
	}
	if got := children.InfrastructureOf(machineOf(cloned("DevMachineTemplate", "desk"))).Hash(); got != "276ea532" {
		t.Errorf("template: hash is %s, was 276ea532", got)
	}
}

// TestIntegersSurvive checks what is sent to the API server.
func TestIntegersSurvive(t *testing.T) {
	const spec = `{"list":[9007199254740993,{"n":-9007199254740993}],"max":9223372036854775807,"min":-9223372036854775808}`
	var object map[string]any
	if err := utiljson.Unmarshal([]byte(spec), &object); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.ScheduledMachine)
		existing *unstructured.Unstructured
	}{
		"Inline":   {inline("DevMachine", spec), nil},
		"Template": {cloned("DevMachineTemplate", "desk"), template(map[string]any{"template": map[string]any{"spec": object}})},
	} {
		t.Run(name, func(t *testing.T) {
			u, problems := desired(t, machineOf(tc.change), tc.existing)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			sent, err := json.Marshal(u.Object["spec"])
			if err != nil || string(sent) != spec {
				t.Errorf("sent %s, %v, want %s", sent, err, spec)
			}
		})
	}
	one := children.InfrastructureOf(machineOf(inline("DevMachine", `{"n":9007199254740993}`))).Hash()
	if one == children.InfrastructureOf(machineOf(inline("DevMachine", `{"n":9007199254740992}`))).Hash() {
		t.Error("an edit of an integer is not noticed")
	}
}

// templates is an API server with one template or nothing.
type templates struct {
	client.Reader

	only *unstructured.Unstructured
}

func (s templates) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		return define(crd, key, schema.FromAPIVersionAndKind(infrastructureVersion, "DevMachineTemplate"),
			schema.FromAPIVersionAndKind(infrastructureVersion, "DevMachine"))
	}
	if s.only == nil || key != client.ObjectKeyFromObject(s.only) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.only.DeepCopyInto(obj.(*unstructured.Unstructured))
	return nil
}

func template(spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(infrastructureVersion)
	u.SetKind("DevMachineTemplate")
	u.SetNamespace("lab")
	u.SetName("desk")
	return u
}

func desired(t *testing.T, sm *v1alpha1.ScheduledMachine, existing *unstructured.Unstructured) (*unstructured.Unstructured, []children.Problem) {
	t.Helper()
	var s children.Set
	r := templates{only: existing}
	u, err := children.Reader{Cached: r, Live: r}.Desired(t.Context(), &s, children.InfrastructureOf(sm))
	if err != nil {
		t.Fatal(err)
	}
	return u, s.Problems
}

func TestCloneIsOurs(t *testing.T) {
	sm := machineOf(cloned("DevMachineTemplate", "desk"))
	got, problems := desired(t, sm, template(map[string]any{"template": map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{"example.org/rack": "7", v1alpha1.ScheduledMachineLabel: "another"},
			"annotations": map[string]any{"example.org/note": "x", v1alpha1.SpecHashAnnotation: "another"},
		},
		"spec": map[string]any{"address": "192.0.2.1"},
	}}))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := map[string]any{
		"apiVersion": infrastructureVersion, "kind": "DevMachine",
		"metadata": map[string]any{
			"namespace": "lab", "name": "box-infra",
			"labels": map[string]any{
				"example.org/rack": "7", "cluster.x-k8s.io/cluster-name": "lab", v1alpha1.ScheduledMachineLabel: "box",
			},
			"annotations": map[string]any{
				"example.org/note": "x", v1alpha1.SpecHashAnnotation: children.InfrastructureOf(sm).Hash(),
				"cluster.x-k8s.io/cloned-from-name":      "desk",
				"cluster.x-k8s.io/cloned-from-groupkind": "DevMachineTemplate.infrastructure.cluster.x-k8s.io",
			},
			"ownerReferences": []any{map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ScheduledMachine", "name": "box", "uid": "u1",
			}},
		},
		"spec": map[string]any{"address": "192.0.2.1"},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestTemplatesThatCannotBeUsed(t *testing.T) {
	cases := map[string]struct {
		reason   string
		kind     string
		existing *unstructured.Unstructured
		want     string
	}{
		"KindNotInstalled": {"Its provider may be missing.", "OtherTemplate", nil, "kind OtherTemplate.infrastructure.cluster.x-k8s.io is not installed"},
		"Missing":          {"It may come yet.", "DevMachineTemplate", nil, "DevMachineTemplate desk does not exist in namespace lab"},
		"NothingToClone":   {"Not every kind of that name is a template.", "DevMachineTemplate", template(map[string]any{}), "DevMachineTemplate desk has no spec.template"},
		"NoObject":         {"It cannot be read.", "DevMachineTemplate", template(map[string]any{"template": "x"}), "DevMachineTemplate desk has no spec.template"},
		"AnotherKind": {
			"What is made must be found again, by its kind.", "DevMachineTemplate",
			template(map[string]any{"template": map[string]any{"kind": "Other"}}), "a Other.infrastructure.cluster.x-k8s.io, not a DevMachine.infrastructure.cluster.x-k8s.io",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, problems := desired(t, machineOf(cloned(tc.kind, "desk")), tc.existing)
			if got != nil || len(problems) != 1 || problems[0].Field != "infrastructureTemplateRef" || !strings.Contains(problems[0].Message, tc.want) {
				t.Errorf("%s\ngot %v, problems %v, want %q", tc.reason, got, problems, tc.want)
			}
		})
	}
}

// TestDroppedNamesWhatTheAPIPruned compares a spec with the stored object.
func TestDroppedNamesWhatTheAPIPruned(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec, live string
		version            string
		want               []string
	}{
		"Same":       {reason: "All is stored.", spec: `{"a":1,"b":{"c":[1]}}`, live: `{"a":1,"b":{"c":[1]}}`},
		"Misspelt":   {reason: "The API does not know it.", spec: `{"addr":"x","port":22}`, live: `{"port":22}`, want: []string{"spec.infrastructureSpec.spec.addr"}},
		"Nested":     {reason: "At any depth, also in lists.", spec: `{"a":{"b":"x","c":1},"l":[{"n":1,"m":"y"}]}`, live: `{"a":{"c":1},"l":[{"n":1}]}`, want: []string{"spec.infrastructureSpec.spec.a.b", "spec.infrastructureSpec.spec.l[0].m"}},
		"Empty":      {reason: "An API may leave zero values out.", spec: `{"a":"","b":false,"c":0,"d":{"e":null},"f":[]}`, live: `{}`},
		"Defaulted":  {reason: "Further fields are the API's.", spec: `{"a":1}`, live: `{"a":1,"b":2}`},
		"Changed":    {reason: "Another value is the provider's decision.", spec: `{"a":1}`, live: `{"a":2}`},
		"NothingAt":  {reason: "An empty spec drops nothing.", spec: ``, live: `{}`},
		"OtherLists": {reason: "Lists of other lengths are not compared.", spec: `{"l":[{"n":1}]}`, live: `{"l":[]}`},
		"Version":    {reason: "Another version may use other names.", spec: `{"a":1}`, live: `{}`, version: "infrastructure.cluster.x-k8s.io/v1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := children.InfrastructureOf(machineOf(inline("X", tc.spec)))
			live := &unstructured.Unstructured{Object: map[string]any{}}
			live.SetAPIVersion(part.Kind().GroupVersion().String())
			if tc.version != "" {
				live.SetAPIVersion(tc.version)
			}
			live.SetAnnotations(map[string]string{v1alpha1.SpecHashAnnotation: part.Hash()})
			var spec map[string]any
			if err := utiljson.Unmarshal([]byte(tc.live), &spec); err != nil {
				t.Fatal(err)
			}
			live.Object["spec"] = spec
			if diff := cmp.Diff(tc.want, part.Dropped(live)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
