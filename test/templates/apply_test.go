// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTemplatesAreTaken fills in every cluster template, and creates its objects and the objects that a
// ScheduledMachine creates in its window. Unknown fields are errors.
func TestTemplatesAreTaken(t *testing.T) {
	installKinds(t)
	for _, file := range files(t, clusterTemplate) {
		for how, set := range map[string]map[string]string{"required": required(), "all": values()} {
			t.Run(flavor(file)+"/"+how, func(t *testing.T) {
				n := newNamespace(t, flavor(file)+"-"+how)
				if class := classes[flavor(file)]; class != "" {
					objects := n.objects(read(t, class))
					n.createAll(objects)
					n.wantReferences(objects)
				}
				objects := n.generate(file, set)
				n.createAll(objects)
				n.wantReferences(objects)
				machines := 0
				for _, u := range objects {
					if u.GetKind() == "ScheduledMachine" {
						machines++
						n.judge(u)
					}
				}
				if machines == 0 {
					t.Error("a template has a ScheduledMachine")
				}
			})
		}
	}
}

// TestOtherTemplatesAreTaken creates the templates without variables.
func TestOtherTemplatesAreTaken(t *testing.T) {
	installKinds(t)
	for _, file := range append(files(t, clusterClass), files(t, resourceSet)...) {
		t.Run(file, func(t *testing.T) {
			n := newNamespace(t, strings.TrimSuffix(file, ".yaml"))
			n.createAll(n.objects(read(t, file)))
		})
	}
}

// installKinds installs the kinds of Cluster API and its providers, k0smotron and 5-Spot. It skips installed kinds.
func installKinds(t *testing.T) {
	t.Helper()
	var paths []string
	for _, pattern := range []string{
		filepath.Join(plane.DefaultBin(), "manifests", "*.yaml"),
		filepath.Join("testdata", "*.yaml"),
		filepath.Join(system.Repository(), "config", "crd", "bases", "*.yaml"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no kinds in %s: %v", pattern, err)
		}
		paths = append(paths, found...)
	}
	var docs [][]byte
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, withoutConversion(t, text))
	}
	if err := shared.Management.InstallCRDs(t.Context(), docs...); err != nil {
		t.Fatal(err)
	}
}

// withoutConversion removes the conversion webhooks, which only a provider's manager can serve.
func withoutConversion(t *testing.T, text []byte) []byte {
	t.Helper()
	objects, err := plane.Objects(text)
	if err != nil {
		t.Fatal(err)
	}
	docs := make([][]byte, len(objects))
	for i, u := range objects {
		unstructured.RemoveNestedField(u.Object, "spec", "conversion")
		if docs[i], err = yaml.Marshal(u.Object); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Join(docs, []byte("---\n"))
}

// A namespace rejects all fields that the schemas do not have.
type namespace struct {
	t      *testing.T
	user   *user
	client client.Client
	name   string
}

func newNamespace(t *testing.T, name string) *namespace {
	t.Helper()
	if err := shared.Management.EnsureNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return &namespace{t, newUser(t), client.WithFieldValidation(shared.Management.Client, metav1.FieldValidationStrict), name}
}

func (n *namespace) objects(text string) []*unstructured.Unstructured {
	n.t.Helper()
	objects, err := plane.Objects([]byte(text))
	if err != nil {
		n.t.Fatal(err)
	}
	return objects
}

// generate fills in a template in both of clusterctl's ways, which must give the same result.
func (n *namespace) generate(file string, set map[string]string) []*unstructured.Unstructured {
	n.t.Helper()
	path := filepath.Join(directory(), file)
	objects := n.objects(n.user.clusterctl(set, "generate", "cluster", "lab", "--target-namespace", n.name, "--from", path))
	set["CLUSTER_NAME"], set["NAMESPACE"] = "lab", n.name
	plain := n.objects(n.user.clusterctl(set, "generate", "yaml", "--from", path))
	if diff := cmp.Diff(objects, plain); diff != "" {
		n.t.Errorf("-generate cluster, +generate yaml:\n%s", diff)
	}
	return objects
}

func (n *namespace) createAll(objects []*unstructured.Unstructured) {
	n.t.Helper()
	for _, u := range objects {
		u := u.DeepCopy()
		u.SetNamespace(n.name)
		if err := n.client.Create(n.t.Context(), u); err != nil {
			n.t.Errorf("creating %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// judge applies 5-Spot's own rules to a ScheduledMachine, and creates its objects.
func (n *namespace) judge(u *unstructured.Unstructured) {
	n.t.Helper()
	sm := &v1alpha1.ScheduledMachine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, sm, true); err != nil {
		n.t.Fatal(err)
	}
	for _, err := range validation.ScheduledMachine(sm) {
		n.t.Errorf("ScheduledMachine %s: %v", sm.Name, err)
	}
	reader := children.Reader{Cached: n.client, Live: n.client}
	for _, part := range []children.Part{children.BootstrapOf(sm), children.InfrastructureOf(sm)} {
		var made children.Set
		child, err := reader.Desired(n.t.Context(), &made, part)
		if err != nil || child == nil {
			n.t.Fatalf("spec.%s makes nothing: %v, %v", part.Field, made.Problems, err)
		}
		child.SetOwnerReferences(nil) // their owner does not exist in the API server
		n.createAll([]*unstructured.Unstructured{child})
	}
}

// wantReferences checks that all referenced objects exist. Every reference of Cluster API has a kind and a name.
func (n *namespace) wantReferences(objects []*unstructured.Unstructured) {
	n.t.Helper()
	for _, u := range objects {
		spec, _, err := unstructured.NestedMap(u.Object, "spec")
		if err != nil {
			n.t.Fatal(err)
		}
		walk(spec, func(ref map[string]any) {
			if err := n.find(n.t.Context(), ref); err != nil {
				n.t.Errorf("%s %s refers to %v: %v", u.GetKind(), u.GetName(), ref, err)
			}
		})
	}
}

// walk calls f with all references in a value.
func walk(value any, f func(ref map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		if v["kind"] != nil && v["name"] != nil {
			f(v)
		}
		for _, below := range v {
			walk(below, f)
		}
	case []any:
		for _, below := range v {
			walk(below, f)
		}
	}
}

func (n *namespace) find(ctx context.Context, ref map[string]any) error {
	var r struct {
		APIGroup   string `json:"apiGroup"`
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(ref, &r); err != nil {
		return err
	}
	kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
	if r.APIGroup != "" {
		kind.Group = r.APIGroup
	}
	mapping, err := n.client.RESTMapper().RESTMapping(kind)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(mapping.GroupVersionKind)
	return n.client.Get(ctx, client.ObjectKey{Namespace: n.name, Name: r.Name}, u)
}
