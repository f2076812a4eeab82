// SPDX-License-Identifier: Apache-2.0

// Package manifests reads the Kubernetes objects of a directory with a kustomization.yaml. The kustomization is the
// only source of the objects, their order of installation, and their labels.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// kustomization is the supported part of a kustomization.yaml. Read rejects other fields, so that it ignores none.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
	Labels     []struct {
		Pairs map[string]string `json:"pairs"`
	} `json:"labels"`
}

// Read returns the objects of a directory in the order of their installation. The caller may change them.
func Read(dir fs.FS) ([]*unstructured.Unstructured, error) {
	text, err := fs.ReadFile(dir, "kustomization.yaml")
	if err != nil {
		return nil, err
	}
	var k kustomization
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		return nil, fmt.Errorf("reading kustomization.yaml: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, name := range k.Resources {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		found, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	for _, u := range objects {
		for _, l := range k.Labels {
			u.SetLabels(labels.Merge(u.GetLabels(), l.Pairs))
		}
	}
	return objects, nil
}

func decode(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		// Unstructured objects need the number types of the JSON decoder.
		raw, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			continue
		}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		objects = append(objects, u)
	}
}

// WithImage returns copies of objects in which every container of a workload uses image. An empty image changes
// nothing.
func WithImage(objects []*unstructured.Unstructured, image string) ([]*unstructured.Unstructured, error) {
	return Change(objects, func(u *unstructured.Unstructured) error {
		path := []string{"spec", "template", "spec", "containers"}
		containers, _, err := unstructured.NestedSlice(u.Object, path...)
		if err != nil || image == "" {
			return err
		}
		for _, c := range containers {
			if container, ok := c.(map[string]any); ok {
				container["image"] = image
			}
		}
		return unstructured.SetNestedSlice(u.Object, containers, path...)
	}, "DaemonSet", "Deployment")
}

// Change returns copies of all objects. It applies change to objects of the given kinds.
func Change(objects []*unstructured.Unstructured, change func(*unstructured.Unstructured) error, kinds ...string) ([]*unstructured.Unstructured, error) {
	copies := make([]*unstructured.Unstructured, 0, len(objects))
	for _, u := range objects {
		u = u.DeepCopy()
		copies = append(copies, u)
		if !slices.Contains(kinds, u.GetKind()) {
			continue
		}
		if err := change(u); err != nil {
			return nil, fmt.Errorf("changing %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return copies, nil
}
