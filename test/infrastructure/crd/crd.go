// SPDX-License-Identifier: Apache-2.0

// Package crd answers one question: which CustomResourceDefinitions does the
// infrastructure provider of the tests need? controller-gen makes them from the
// types in ../api.
package crd

import (
	"bytes"
	"embed"
	"fmt"
)

//go:generate sh -c "cd .. && go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object paths=./api/... crd output:crd:dir=./crd"

//go:embed *.yaml
var files embed.FS

// All returns them as one stream of YAML documents.
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
