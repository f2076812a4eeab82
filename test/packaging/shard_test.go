// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// filledIn is clusterctl's output for a directory of config.
func filledIn(t *testing.T, directory string) []*unstructured.Unstructured {
	t.Helper()
	text, err := kustomize(directory)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "components.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
	filled, err := output(filepath.Join(plane.DefaultBin(), "clusterctl"), "generate", "yaml", "--from", file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(filled), "${") {
		t.Errorf("clusterctl left variables:\n%s", filled)
	}
	return decode(t, filled)
}

func deploymentOf(t *testing.T, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	i := slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, d, true); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestAShardStandsNextToTheFirst compares the two installations as applied.
func TestAShardStandsNextToTheFirst(t *testing.T) {
	first := filledIn(t, "default")
	t.Setenv("FIVESPOT_SHARD", "b")
	t.Setenv("FIVESPOT_WATCH_FILTER", "1") // a number to YAML
	shard := filledIn(t, "shard")
	taken := byName(first)
	for name := range byName(shard) {
		if taken[name] != nil {
			t.Errorf("%s would be taken over from the first installation", name)
		}
	}
	c := client.WithFieldValidation(shared.Management.Client, metav1.FieldValidationStrict)
	if err := shared.Management.EnsureNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, u := range shard {
		what := u.GetKind() + " " + u.GetName()
		if _, theirs := u.GetLabels()["cluster.x-k8s.io/provider"]; theirs {
			t.Errorf("%s has the label by which an upgrade of the first deletes objects", what)
		}
		if role, _, _ := unstructured.NestedString(u.Object, "roleRef", "name"); u.GetKind() == "ClusterRoleBinding" && taken["ClusterRole /"+role] == nil {
			t.Errorf("%s: the first installation has no ClusterRole %s", what, role)
		}
		if err := c.Create(t.Context(), u.DeepCopy(), client.DryRunAll); err != nil {
			t.Errorf("creating %s: %v", what, err)
		}
	}
	selector, _, _ := unstructured.NestedStringMap(only(t, "Service").Object, "spec", "selector")
	pods := deploymentOf(t, shard).Spec.Template
	if labels.SelectorFromSet(selector).Matches(labels.Set(pods.Labels)) {
		t.Error("the API server would call the shard for its webhook")
	}

	want := strings.Join(deploymentOf(t, first).Spec.Template.Spec.Containers[0].Args, "\n")
	want = strings.NewReplacer("--watch-filter=\n", "--watch-filter=1\n", "--runtime-extension=enabled", "--runtime-extension=external").Replace(want)
	if diff := cmp.Diff(want, strings.Join(pods.Spec.Containers[0].Args, "\n")); diff != "" {
		t.Errorf("a shard has the arguments of the first: -want, +got:\n%s", diff)
	}
}
