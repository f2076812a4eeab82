// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

var command = regexp.MustCompile("(?s)\n```sh\n(.*?)```")

// TestDocumentedCommands runs the commands of docs/install.md about templates, in a folder with the templates. The
// management cluster has only the kinds, and no namespace either, as for a reader of the page.
func TestDocumentedCommands(t *testing.T) {
	installKinds(t)
	page, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Start from a template\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := command.FindAllStringSubmatch(section, -1)
	if len(commands) != 3 {
		t.Fatalf("docs/install.md has %d blocks of commands about templates, want a namespace and 2 templates", len(commands))
	}
	home := newUser(t).home
	for _, file := range slices.Concat(files(t, clusterTemplate), files(t, clusterClass)) {
		if err := os.Symlink(filepath.Join(directory(), file), filepath.Join(home, file)); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range commands {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", m[1])
		cmd.Dir = home
		cmd.Env = append(shared.Management.Environ(home),
			"PATH="+system.DefaultBin()+":"+plane.DefaultBin()+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || i > 0 && !strings.Contains(string(out), "scheduledmachine.5spot.finos.org/") {
			t.Fatalf("%s%v\n%s", m[1], err, out)
		}
	}
}
