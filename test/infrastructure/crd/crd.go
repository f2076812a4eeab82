// SPDX-License-Identifier: Apache-2.0

// Package crd answers one question: which kinds does the infrastructure provider
// of the tests serve? controller-gen makes their definitions from the types in
// ../api.
package crd

import (
	"bytes"
	"embed"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

//go:generate sh -c "cd .. && go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object paths=./api/... crd output:crd:dir=./crd"

//go:embed *.yaml
var files embed.FS

// AddToScheme registers all kinds.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(infrav1.AddToScheme(s), bootstrapv1.AddToScheme(s), controlplanev1.AddToScheme(s))
}

// All returns the definitions as one stream of YAML documents.
func All() []byte {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("reading embedded files: %v", err)) // the files are part of the program
	}
	docs := make([][]byte, 0, len(entries))
	for _, e := range entries {
		b, err := files.ReadFile(e.Name())
		if err != nil {
			panic(fmt.Sprintf("reading embedded files: %v", err))
		}
		docs = append(docs, b)
	}
	return bytes.Join(docs, []byte("\n---\n"))
}
