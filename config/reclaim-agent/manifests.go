// SPDX-License-Identifier: Apache-2.0

// Package manifests has the objects of a workload cluster in which reclaim agents run, in the order in which they are
// applied.
package manifests

import (
	"embed"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// permitHold is the patch of the policies for a hold.
var permitHold = []byte(`{"spec": {"variables": [{"name": "hold", "expression": "true"}]}}`)

// Objects returns the objects in the order of their installation. They
// belong to the caller.
func Objects() ([]*unstructured.Unstructured, error) { return manifests.Read(files) }

// Polling returns copies of objects in which the agent only polls, and has none of
// the rights that listening to the kernel takes.
func Polling(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	return patched(objects, "DaemonSet", polling, appsv1.DaemonSet{})
}

// Holding returns copies of objects in which the agent can hold the pods of its Node. It
// may write to the cgroup files of the host, and report the hold on its Node.
func Holding(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	objects, err := patched(objects, "DaemonSet", holding, appsv1.DaemonSet{})
	if err != nil {
		return nil, err
	}
	return patched(objects, "ValidatingAdmissionPolicy", permitHold, admissionregistrationv1.ValidatingAdmissionPolicy{})
}

// patched returns copies of objects in which all of a kind have a strategic merge patch.
func patched(objects []*unstructured.Unstructured, kind string, text []byte, schema any) ([]*unstructured.Unstructured, error) {
	patch, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("reading patch of kind %s: %w", kind, err)
	}
	return manifests.Change(objects, func(u *unstructured.Unstructured) error {
		before, err := u.MarshalJSON()
		if err != nil {
			return err
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, schema)
		if err != nil {
			return err
		}
		return u.UnmarshalJSON(after)
	}, kind)
}
