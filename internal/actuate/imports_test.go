// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOnlyThisPackageMakesWritingClients searches for packages of the manager that could create a client. A linter
// forbids the write methods of clients that are passed in.
func TestOnlyThisPackageMakesWritingClients(t *testing.T) {
	makes := []string{
		"k8s.io/client-go/rest", "k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/metadata",
		"k8s.io/client-go/scale", "k8s.io/client-go/gentype", "k8s.io/client-go/tools/clientcmd",
	}
	allowed := map[string]string{
		"controllers/setup.go":          "the actuator's client without a limit",
		"internal/actuate/transport.go": "the last gate itself",
		"internal/manager/manager.go":   "the manager's connection, behind that gate",
	}
	// tests, the client of a person, and another program
	others := []string{"internal/testenv", "internal/kubectl", "exp/eviction/guard"}
	root, found := "../..", map[string]bool{}
	for _, dir := range []string{"api", "controllers", "internal", "runtime-extension", "cmd/manager", "config", "exp"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, _ := filepath.Rel(root, path)
			if slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(name, other+"/") }) {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range file.Imports {
				imported, _ := strconv.Unquote(i.Path.Value)
				if slices.ContainsFunc(makes, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }) {
					found[name] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{}
	for name := range allowed {
		want[name] = true
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("write with an actuate.Actuator: -may, +do:\n%s", diff)
	}
}
