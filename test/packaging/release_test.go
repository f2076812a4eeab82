// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// makeIn runs make in a copy of the repository, or in the repository itself.
func makeIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-C", dir}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
}

// TestAReleaseHasOneVersion runs make without building.
func TestAReleaseHasOneVersion(t *testing.T) {
	const image = "registry.example.org:5000/5spot"
	t.Setenv("MAKEFLAGS", "") // With the -i of a make that runs this test, no target would fail.
	for name, tc := range map[string]struct {
		reason  string
		args    []string
		version string // of the programs; empty is an error
	}{
		"Image":   {"The tag says which version it is.", []string{"IMAGE=" + image + ":v0.1.0"}, "v0.1.0"},
		"Digest":  {"What follows the tag is no part of it.", []string{"IMAGE=" + image + ":v0.1.0@sha256:00"}, "v0.1.0"},
		"Version": {"Then the image has it as its tag.", []string{"VERSION=v0.2.0"}, "v0.2.0"},
		"Both":    {"They agree.", []string{"VERSION=v0.1.0", "IMAGE=" + image + ":v0.1.0"}, "v0.1.0"},
		"Neither": {"A port is no tag.", []string{"IMAGE=" + image}, ""},
		"Differ":  {"The programs would name another version than people pull.", []string{"VERSION=v0.2.0", "IMAGE=" + image + ":v0.1.0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(args ...string) ([]byte, error) {
				return output(append(append([]string{"make", "-C", system.Repository()}, args...), tc.args...)...)
			}
			if _, err := ask("agreed"); (err == nil) != (tc.version != "") || err != nil && !strings.Contains(err.Error(), "give IMAGE a tag") {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			for _, target := range []string{"plugin-binaries", "image-binaries"} {
				plan, err := ask("-n", target)
				if err != nil {
					t.Fatal(err)
				}
				if tc.version != "" && !strings.Contains(string(plan), "main.version="+tc.version+"'") {
					t.Errorf("%s\n%s does not build %s:\n%s", tc.reason, target, tc.version, plan)
				}
				if !strings.HasPrefix(strings.TrimSpace(withoutDirectories(string(plan))), "[ ") {
					t.Errorf("%s builds before it has compared the versions:\n%s", target, plan)
				}
			}
		})
	}
}

// withoutDirectories drops the directory messages of make -C.
func withoutDirectories(plan string) string {
	lines := slices.DeleteFunc(strings.SplitAfter(plan, "\n"), func(line string) bool { return strings.HasPrefix(line, "make") })
	return strings.Join(lines, "")
}

// TestThePluginIsBuiltForEverybody runs make without building; TestImageIsStaticAndReproducible builds the plugin for
// another platform.
func TestThePluginIsBuiltForEverybody(t *testing.T) {
	plan, err := output("make", "-n", "-C", system.Repository(), "plugin-binaries")
	if err != nil {
		t.Fatal(err)
	}
	_, sums, _ := strings.Cut(string(plan), "sha256sum ")
	sums, _, _ = strings.Cut(sums, " >kubectl-5spot.sha256")
	want := []string{
		"kubectl-5spot-darwin-amd64", "kubectl-5spot-darwin-arm64",
		"kubectl-5spot-linux-amd64", "kubectl-5spot-linux-arm64",
		"kubectl-5spot-windows-amd64.exe", "kubectl-5spot-windows-arm64.exe",
	}
	got := strings.Fields(sums)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("a release has the plugins %v, want %v", got, want)
	}
	for _, name := range want {
		if !strings.Contains(string(plan), "-o out/"+name+" ./cmd/kubectl-5spot\n") {
			t.Errorf("nobody builds %s:\n%s", name, plan)
		}
	}
	if !strings.Contains(string(plan), "kubectl_complete-5spot out/\n") {
		t.Errorf("a release has no completion:\n%s", plan)
	}
}

// TestReleaseHasOneImage makes a release: manager, agent and guard must have the same image for every way of
// installation.
func TestReleaseHasOneImage(t *testing.T) {
	tools, err := filepath.Glob(filepath.Join(system.Repository(), "bin", "tools", "kustomize-*"))
	if err != nil || len(tools) == 0 {
		t.Skip("kustomize is not built: run `make release-manifests`")
	}
	const image = "mirror.example.org/5spot:v1.2.3"
	dir := t.TempDir()
	makeIn(t, system.Repository(), "release-manifests", "OUT="+dir, "IMAGE="+image)
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		images := 0
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
				if images++; name != image {
					t.Errorf("%s has the image %s, want %s", filepath.Base(file), name, image)
				}
			}
		}
		if want := !withoutImage(filepath.Base(file)); (images == 1) != want {
			t.Errorf("%s names %d images", filepath.Base(file), images)
		}
	}
	templates, err := filepath.Glob(filepath.Join(system.Repository(), "templates", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"addon-components.yaml", "eviction-guard-policies.yaml", "eviction-guard.yaml", "metadata.yaml", "owner-policy.yaml", "shard-components.yaml"}
	for _, file := range templates {
		want = append(want, filepath.Base(file))
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("a release has %v, want %v", names, want)
	}
}

// withoutImage reports whether a file of a release names no image.
func withoutImage(name string) bool {
	return name == "metadata.yaml" || name == "owner-policy.yaml" || name == "eviction-guard-policies.yaml" || strings.HasPrefix(name, "cluster-template-") || strings.HasPrefix(name, "clusterclass-")
}
