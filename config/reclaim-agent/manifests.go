// SPDX-License-Identifier: Apache-2.0

// Package manifests has the objects of a workload cluster in which reclaim agents run, in the order in which they are
// applied.
package manifests

import (
	"embed"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/manifests"
)

//go:embed *.yaml
var files embed.FS

// polling is the patch for an agent that only polls.
//
//go:embed poll/daemonset.yaml
var polling []byte

// holding is the patch of the DaemonSet for a hold.
//
//go:embed hold/daemonset.yaml
var holding []byte

// cgroupRoot is the argument for the path of the cgroup files of the host.
const cgroupRoot = "--cgroup-root=/host/cgroup"

// Objects returns the objects in the order of their installation. They
// belong to the caller.
func Objects() ([]*unstructured.Unstructured, error) { return manifests.Read(files) }

// Polling returns copies of objects in which the agent only polls, and has none of
// the rights that listening to the kernel takes.
func Polling(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	return patched(objects, polling)
}

// Holding returns copies of objects in which the agent can hold the pods of its Node. It
// may write to the cgroup files of the host, and report the hold on its Node.
func Holding(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	objects, err := patched(objects, holding)
	if err != nil {
		return nil, err
	}
	if objects, err = manifests.Change(objects, addCgroupRoot, "DaemonSet"); err != nil {
		return nil, err
	}
	return manifests.Change(objects, permitHold, "ValidatingAdmissionPolicy")
}

// permitHold sets the variable of a policy that permits a hold.
func permitHold(u *unstructured.Unstructured) error {
	path := []string{"spec", "variables"}
	variables, _, err := unstructured.NestedSlice(u.Object, path...)
	if err != nil {
		return err
	}
	for _, v := range variables {
		if variable, ok := v.(map[string]any); ok && variable["name"] == "hold" {
			variable["expression"] = "true"
			return unstructured.SetNestedSlice(u.Object, variables, path...)
		}
	}
	return fmt.Errorf("policy %s has no variable hold", u.GetName())
}

// addCgroupRoot adds an argument to those of either detector: a patch would replace the list.
func addCgroupRoot(u *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(u.Object, path...)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if container, ok := c.(map[string]any); ok {
			args, _ := container["args"].([]any)
			container["args"] = append(args, cgroupRoot)
		}
	}
	return unstructured.SetNestedSlice(u.Object, containers, path...)
}

// patched returns copies of objects in which the DaemonSet has a strategic merge patch.
func patched(objects []*unstructured.Unstructured, text []byte) ([]*unstructured.Unstructured, error) {
	patch, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("reading patch of the DaemonSet: %w", err)
	}
	return manifests.Change(objects, func(u *unstructured.Unstructured) error {
		before, err := u.MarshalJSON()
		if err != nil {
			return err
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.DaemonSet{})
		if err != nil {
			return err
		}
		return u.UnmarshalJSON(after)
	}, "DaemonSet")
}
