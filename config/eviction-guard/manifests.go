// SPDX-License-Identifier: Apache-2.0

// Package manifests answers one question: what does a workload cluster need so that
// the eviction guard can run there, and in which order?
package manifests

import (
	"embed"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/manifests"
)

//go:embed *.yaml crd/*.yaml
var files embed.FS

// Objects returns the objects in the order of their installation. They
// belong to the caller.
func Objects() ([]*unstructured.Unstructured, error) { return manifests.Read(files) }
