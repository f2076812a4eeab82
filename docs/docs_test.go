// SPDX-License-Identifier: Apache-2.0

// Package docs_test answers one question: is what the documentation says still so?
// The pages schedules.md, kubectl-plugin.md and owners.md are run by internal/kubectl.
package docs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/config"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/topologymutation"
)

const root = ".."

var (
	block   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span    = regexp.MustCompile("`([^`\n]+)`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	flag    = regexp.MustCompile(`--[a-z][a-z0-9-]*`)
	key     = regexp.MustCompile(`(exp\.)?5spot\.finos\.org/[a-z][a-z-]*[a-z]`)
)

// pages returns the text of every page, by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"README.md": "", "CONTRIBUTING.md": ""}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ os.DirEntry, err error) error {
		if rel, relErr := filepath.Rel(root, path); relErr == nil && filepath.Ext(path) == ".md" {
			all[rel] = ""
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range all {
		all[path] = read(t, path)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a page in one of the languages.
func blocks(page string, languages ...string) []string {
	var found []string
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		if slices.Contains(languages, m[1]) {
			found = append(found, m[2])
		}
	}
	return found
}

// TestYAML decodes every object strictly and judges it as the API would.
func TestYAML(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1alpha1.AddToScheme, expv1.AddToScheme, evictionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for path, page := range pages(t) {
		elsewhere := slices.Contains([]string{"docs/schedules.md", "docs/kubectl-plugin.md"}, path)
		for _, text := range blocks(page, "yaml") {
			for doc := range strings.SplitSeq(text, "\n---\n") {
				if !strings.Contains(doc, "apiVersion:") || !strings.Contains(doc, "metadata:") {
					decodeFragment(t, path, doc)
					continue
				}
				obj, _, err := decoder.Decode([]byte(doc), nil, nil)
				if err != nil {
					t.Errorf("%s: %v in\n%s", path, err, doc)
				} else if !elsewhere {
					judge(t, path, obj)
				}
			}
		}
	}
}

// decodeFragment reads a part of a ScheduledMachine, such as its spec, or of a
// ClusterClass.
func decodeFragment(t *testing.T, path, text string) {
	t.Helper()
	err := yaml.UnmarshalStrict([]byte(text), &v1alpha1.ScheduledMachine{})
	if err != nil && yaml.UnmarshalStrict([]byte(text), &clusterv1.ClusterClass{}) != nil {
		t.Errorf("%s: %v in\n%s", path, err, text)
	}
}

func judge(t *testing.T, path string, obj runtime.Object) {
	t.Helper()
	switch o := obj.(type) {
	case *v1alpha1.ScheduledMachine:
		for _, err := range validation.ScheduledMachine(o) {
			t.Errorf("%s: ScheduledMachine %s: %v", path, o.Name, err)
		}
	case *clusterv1.Cluster:
		if value, found := variable.Of(o); found {
			_, errs := variable.Parse(value, o.Name)
			for _, err := range errs {
				t.Errorf("%s: Cluster %s: %v", path, o.Name, err)
			}
		}
	case *corev1.ConfigMap:
		if _, err := config.Parse([]byte(o.Data[reclaim.ConfigMapKey])); err != nil {
			t.Errorf("%s: ConfigMap %s: %v", path, o.Name, err)
		}
	default:
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for path, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(path), file)
			if file == "" {
				target = path
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s: %v", path, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s: no such heading", path, m[1])
			}
		}
	}
}

// anchors are the names that GitHub gives headings.
func anchors(page string) []string {
	var found []string
	for _, m := range heading.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
		name := strings.ToLower(m[1])
		name = regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(name, "")
		found = append(found, strings.ReplaceAll(name, " ", "-"))
	}
	return found
}

func TestMakeTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, file := range []string{"Makefile", "hack/plane.mk", "hack/kind/offline.mk"} {
		for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, file), -1) {
			targets[m[1]] = true
		}
	}
	use := regexp.MustCompile("(?m)(?:^|`|&& )make ([a-z0-9-]+)")
	for path, page := range pages(t) {
		for _, m := range use.FindAllStringSubmatch(page, -1) {
			if !targets[m[1]] {
				t.Errorf("%s: make has no target %s", path, m[1])
			}
		}
	}
}

// ours are the programs whose flags are documented.
var ours = []string{"kubectl 5spot", "kubectl-5spot", "manager", "reclaim-agent", "eviction-guard"}

func TestFlagsExist(t *testing.T) {
	known := flag.FindAllString(read(t, "docs/reference/flags.md"), -1)
	known = append(known, "--help")
	for path, page := range pages(t) {
		var texts []string
		for _, m := range span.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
			if strings.HasPrefix(m[1], "--") || isOurs(m[1]) {
				texts = append(texts, m[1])
			}
		}
		for _, b := range blocks(page, "sh", "console") {
			for line := range strings.Lines(strings.ReplaceAll(b, "\\\n", " ")) {
				if isOurs(strings.TrimPrefix(line, "$ ")) {
					texts = append(texts, line)
				}
			}
		}
		for _, text := range texts {
			for _, f := range flag.FindAllString(text, -1) {
				if !slices.Contains(known, f) {
					t.Errorf("%s: no flag %s, in %q", path, f, text)
				}
			}
		}
	}
}

func isOurs(command string) bool {
	return slices.ContainsFunc(ours, func(program string) bool {
		return strings.HasPrefix(strings.TrimPrefix(command, "bin/"), program+" ")
	})
}

func TestKeysExist(t *testing.T) {
	known := key.FindAllString(read(t, "docs/reference/reasons.md"), -1)
	for path, page := range pages(t) {
		for _, k := range key.FindAllString(page, -1) {
			if !slices.Contains(known, k) && k != v1alpha1.GroupVersion.Group+"/v" {
				t.Errorf("%s: nobody reads or writes %s", path, k)
			}
		}
	}
}

// TestEveryReasonIsExplained keeps the guide's troubleshooting complete.
func TestEveryReasonIsExplained(t *testing.T) {
	guide := read(t, "docs/guide.md")
	_, reference, _ := strings.Cut(read(t, "docs/reference/reasons.md"), "\n## Conditions\n")
	reference, _, _ = strings.Cut(reference, "\n## Events\n")
	rows := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(reference, -1)
	if len(rows) == 0 {
		t.Fatal("no reasons in the reference")
	}
	for _, m := range rows {
		if !strings.Contains(guide, "`"+m[1]+"`") {
			t.Errorf("the guide does not say what to do about %s", m[1])
		}
	}
}

// TestVariableIsExplained keeps the page about the topology variable complete.
func TestVariableIsExplained(t *testing.T) {
	page := read(t, "docs/clusterclass.md")
	for name := range topologymutation.Variable().Schema.OpenAPIV3Schema.Items.Properties {
		if !strings.Contains(page, name+":") {
			t.Errorf("the page about ClusterClasses has no example of %s", name)
		}
	}
}

func TestDecisionsAreListed(t *testing.T) {
	list := read(t, "docs/adr/0001-record-decisions.md")
	for path := range pages(t) {
		if name := filepath.Base(path); filepath.Dir(path) == "docs/adr" && name != "0001-record-decisions.md" && !strings.Contains(list, "("+name+")") {
			t.Errorf("%s is not in the list of 0001", name)
		}
	}
}

// TestExamplesAreCompiled compares programs with the ones that are compiled and run.
func TestExamplesAreCompiled(t *testing.T) {
	page := read(t, "docs/extensions.md")
	_, program, _ := strings.Cut(read(t, "test/drainer/drainer.go"), "\n\n")
	if got := blocks(page, "go"); !slices.Equal(got, []string{program}) {
		t.Errorf("docs/extensions.md has programs %q, and test/drainer/drainer.go is\n%s", got, program)
	}
}

// TestCasesNameTests looks for the tests that tables of cases name.
func TestCasesNameTests(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"test/*/*_test.go", "exp/detach/*_test.go", "exp/detach/*/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	for table, least := range map[string]int{"test/detach/doc.go": 50, "test/eviction/doc.go": 35} {
		names := regexp.MustCompile(`\b[A-Z][a-z]*([A-Z][a-z]+){2,}\b`).FindAllString(read(t, table), -1)
		if len(names) < least {
			t.Errorf("%s has only %d names", table, len(names))
		}
		for _, name := range names {
			if !strings.Contains(tests.String(), "func Test"+name+"(") {
				t.Errorf("%s: there is no Test%s", table, name)
			}
		}
	}
}

func TestREADME(t *testing.T) {
	readme := read(t, "README.md")
	if lines := strings.Count(readme, "\n"); lines > 100 {
		t.Errorf("%d lines, want at most 100", lines)
	}
	_, section, _ := strings.Cut(readme, "\n## Test\n")
	tests := blocks(section, "sh")
	if len(tests) == 0 {
		t.Fatal("no command in the section Test")
	}
	command, _, _ := strings.Cut(tests[0], "\n")
	command, _, _ = strings.Cut(command, "#")
	ci := bytes.Fields([]byte(read(t, ".ci/run")))
	if got := string(bytes.Join(ci[max(0, len(ci)-2):], []byte(" "))); got != strings.TrimSpace(command) {
		t.Errorf("CI runs %q, the README says %q", got, strings.TrimSpace(command))
	}
}

// TestSafetyRailsIsOnePage holds the length of the page that an operator reads during an incident.
func TestSafetyRailsIsOnePage(t *testing.T) {
	page := read(t, "docs/safety-rails.md")
	if n := len(strings.Fields(page)); n > 900 {
		t.Errorf("%d words, want at most 900", n)
	}
	if n := strings.Count(page, "\n|---"); n != 1 {
		t.Errorf("%d tables, want 1", n)
	}
}

// TestArchitectureNamesEveryController holds the table of controllers of the architecture page.
func TestArchitectureNamesEveryController(t *testing.T) {
	page := read(t, "docs/architecture.md")
	dirs, err := os.ReadDir(filepath.Join(root, "controllers"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && !strings.Contains(page, "`controllers/"+d.Name()+"`") {
			t.Errorf("no row for controllers/%s", d.Name())
		}
	}
	for _, name := range regexp.MustCompile("`((?:controllers|internal|exp)/[a-z/]+)`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(root, name[1])); err != nil {
			t.Errorf("the page names %s, which does not exist", name[1])
		}
	}
}
