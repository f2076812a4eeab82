// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	clusterTemplate = "cluster-template-"
	clusterClass    = "clusterclass-"
	resourceSet     = "clusterresourceset-"
)

// classes are the ClusterClasses that cluster templates need, by flavor.
var classes = map[string]string{"scheduled-topology": "clusterclass-scheduled-in-memory.yaml"}

// directory is the folder of the templates.
func directory() string { return filepath.Join(system.Repository(), "templates") }

// files returns the templates whose names have a prefix.
func files(t *testing.T, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatalf("there is no template %s", prefix)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// flavor returns the flavor of a cluster template.
func flavor(file string) string {
	return strings.TrimSuffix(strings.TrimPrefix(file, clusterTemplate), ".yaml")
}

// TestEveryFileIsTested fails for a file of an unknown kind.
func TestEveryFileIsTested(t *testing.T) {
	readme := read(t, "README.md")
	for _, name := range files(t, "") {
		switch {
		case name == "README.md":
			continue
		case strings.HasPrefix(name, clusterTemplate) && strings.HasSuffix(name, ".yaml"):
			if !strings.Contains(readme, "\n| `"+flavor(name)+"` |") {
				t.Errorf("README.md does not say what %s is", name)
			}
		case strings.HasPrefix(name, clusterClass):
			if !slices.Contains(slices.Collect(maps.Values(classes)), name) {
				t.Errorf("no cluster template needs %s", name)
			}
		case strings.HasPrefix(name, resourceSet):
		default:
			t.Errorf("nobody tests %s", name)
		}
		if !strings.Contains(readme, strings.TrimPrefix(strings.TrimSuffix(name, ".yaml"), clusterTemplate)) {
			t.Errorf("README.md does not name %s", name)
		}
	}
}

// TestClusterClassesAreTheSameForAll: Clusters share them, and they are applied in the namespace of their Clusters.
func TestClusterClassesAreTheSameForAll(t *testing.T) {
	for _, name := range files(t, clusterClass) {
		text := read(t, name)
		if strings.Contains(text, "${") || strings.Contains(text, "namespace:") {
			t.Errorf("%s must have neither variables nor namespaces", name)
		}
	}
}

// A variable is a variable of a template, according to clusterctl or to the README.
type variable struct {
	Default  string
	Required bool
	Flavors  string
}

// TestVariablesAreDocumented compares the README's table with clusterctl's list.
func TestVariablesAreDocumented(t *testing.T) {
	u := newUser(t)
	found := map[string]variable{}
	flavors := map[string][]string{}
	all := files(t, clusterTemplate)
	for _, file := range all {
		for name, v := range u.variables(file) {
			if before, ok := found[name]; ok && before != v {
				t.Errorf("%s is another in %s: %+v, %+v", name, file, v, before)
			}
			found[name], flavors[name] = v, append(flavors[name], "`"+flavor(file)+"`")
		}
	}
	for name, v := range found {
		v.Flavors = strings.Join(flavors[name], ", ")
		if len(flavors[name]) == len(all) {
			v.Flavors = "all"
		}
		found[name] = v
	}
	row := regexp.MustCompile("(?m)^\\| `([A-Z0-9_]+)` \\| (?:`(.*?)` )?\\| (.*?) \\|")
	documented := map[string]variable{}
	for _, m := range row.FindAllStringSubmatch(read(t, "README.md"), -1) {
		documented[m[1]] = variable{Default: m[2], Required: m[2] == "", Flavors: m[3]}
	}
	if diff := cmp.Diff(found, documented); diff != "" {
		t.Errorf("-variables of the templates, +as README.md has them:\n%s", diff)
	}
}

// TestMissingVariableIsNamed leaves out every required variable in turn.
func TestMissingVariableIsNamed(t *testing.T) {
	u := newUser(t)
	for _, file := range files(t, clusterTemplate) {
		for name, v := range u.variables(file) {
			if !v.Required {
				continue
			}
			t.Run(flavor(file)+"/"+name, func(t *testing.T) {
				set := required()
				delete(set, name)
				out, err := u.try(set, "generate", "cluster", "lab", "--target-namespace", "farm", "--from", filepath.Join(directory(), file))
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("[%s] is not set", name)) {
					t.Errorf("clusterctl must say that %s is missing, got %v\n%s", name, err, out)
				}
			})
		}
	}
}
