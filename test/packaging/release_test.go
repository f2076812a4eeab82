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

// TestReleaseHasOneImage makes a release: the manager and the agent are of the same,
// whoever installs the agent.
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
	want := []string{"addon-components.yaml", "metadata.yaml", "owner-policy.yaml"}
	for _, file := range templates {
		want = append(want, filepath.Base(file))
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("a release has %v, want %v", names, want)
	}
}

// withoutImage reports whether a file of a release is not about programs.
func withoutImage(name string) bool {
	return name == "metadata.yaml" || name == "owner-policy.yaml" || strings.HasPrefix(name, "cluster-template-") || strings.HasPrefix(name, "clusterclass-")
}
