// SPDX-License-Identifier: Apache-2.0

// Package manifests answers one question: what does a workload cluster need so that
// reclaim agents can run there, and in which order?
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

// polling is what kustomize patches in to make an agent that only polls.
//
//go:embed poll/daemonset.yaml
var polling []byte

// Objects returns the objects in the order of their installation. They
// belong to the caller.
func Objects() ([]*unstructured.Unstructured, error) { return manifests.Read(files) }

// Polling returns copies of objects in which the agent only polls, and has none of
// the rights that listening to the kernel takes.
func Polling(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	patch, err := yaml.YAMLToJSON(polling)
	if err != nil {
		return nil, fmt.Errorf("reading poll/daemonset.yaml: %w", err)
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
