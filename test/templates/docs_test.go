// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

var command = regexp.MustCompile("(?s)\n```sh\n(.*?)```")

// TestDocumentedCommands runs what docs/install.md says about templates, in a folder
// that has them.
func TestDocumentedCommands(t *testing.T) {
	installKinds(t)
	page, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Start from a template\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := command.FindAllStringSubmatch(section, -1)
	if len(commands) != 2 {
		t.Fatalf("docs/install.md has %d blocks of commands about templates, want 2", len(commands))
	}
	n := newNamespace(t, "farm")
	if err := os.Symlink(directory(), filepath.Join(n.user.home, "templates")); err != nil {
		t.Fatal(err)
	}
	for _, m := range commands {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", m[1])
		cmd.Dir = n.user.home
		cmd.Env = append(shared.Management.Environ(n.user.home),
			"PATH="+system.DefaultBin()+":"+plane.DefaultBin()+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "scheduledmachine.5spot.finos.org/") {
			t.Errorf("%s%v\n%s", m[1], err, out)
		}
	}
}
