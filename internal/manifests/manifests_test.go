// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/manifests"
)

func directory(kustomization string) fstest.MapFS {
	return fstest.MapFS{
		"kustomization.yaml": {Data: []byte(kustomization)},
		"b.yaml":             {Data: []byte("# nothing\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n")},
		"a.yaml": {Data: []byte("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, labels: {own: x}}\n" +
			"spec: {template: {spec: {containers: [{name: a, image: old}]}}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: c}\n")},
	}
}

func TestReadKeepsTheOrderOfTheKustomization(t *testing.T) {
	objects, err := manifests.Read(directory("kind: Kustomization\nresources: [b.yaml, a.yaml]\nlabels: [{pairs: {l: v}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, u := range objects {
		kinds = append(kinds, u.GetKind())
		if u.GetLabels()["l"] != "v" {
			t.Errorf("%s lacks the label: %v", u.GetName(), u.GetLabels())
		}
	}
	if got := strings.Join(kinds, " "); got != "Namespace DaemonSet Secret" {
		t.Errorf("the order is an order of installation: %s", got)
	}
	if objects[1].GetLabels()["own"] != "x" {
		t.Error("its own label is lost")
	}
}

func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, text := range []string{"kind: Kustomization\nnamePrefix: x-\n", "resources: [none.yaml]\n"} {
		if _, err := manifests.Read(directory(text)); err == nil {
			t.Errorf("kustomize would make something else of it: %s", text)
		}
	}
}

func TestWithImage(t *testing.T) {
	objects, err := manifests.Read(directory("resources: [a.yaml]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": "old", "new": "new"} {
		changed, err := manifests.WithImage(objects, given)
		if err != nil {
			t.Fatal(err)
		}
		if got := image(changed[0]); got != want {
			t.Errorf("%q gives image %q, want %q", given, got, want)
		}
	}
	if got := image(objects[0]); got != "old" {
		t.Errorf("the original is %q", got)
	}
}

func image(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	container, _ := containers[0].(map[string]any)
	name, _ := container["image"].(string)
	return name
}
