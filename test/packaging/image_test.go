// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"debug/pe"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// cold disables Go's cache for the second build. It takes minutes.
var cold = flag.Bool("cold", false, "build the image's programs a second time without Go's cache")

// foreign is a platform for which only the plugin is built.
const foreign = "windows/amd64"

var (
	platforms = map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	programs  = []string{"manager", "reclaim-agent", "eviction-guard"}
)

// TestImageIsStaticAndReproducible builds the image's programs twice, from copies of the sources in different
// directories.
func TestImageIsStaticAndReproducible(t *testing.T) {
	system.Long(t)
	first := buildPrograms(t, filepath.Join(t.TempDir(), "here"))
	if *cold {
		t.Setenv("GOCACHE", t.TempDir())
	}
	second := buildPrograms(t, filepath.Join(t.TempDir(), "quite", "elsewhere"))
	for platform, machine := range platforms {
		for _, program := range programs {
			path := filepath.FromSlash(platform + "/" + program)
			static(t, filepath.Join(first, path), machine)
			a, b := sum(t, filepath.Join(first, path)), sum(t, filepath.Join(second, path))
			t.Logf("%s %x", path, a)
			if a != b {
				t.Errorf("%s differs: %x and %x", path, a, b)
			}
		}
	}
	plugin := filepath.Join("..", "kubectl-5spot-windows-amd64.exe")
	executable, err := pe.Open(filepath.Join(first, plugin))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = executable.Close() }()
	a, b := sum(t, filepath.Join(first, plugin)), sum(t, filepath.Join(second, plugin))
	if a != b {
		t.Errorf("the plugin differs: %x and %x", a, b)
	}
	sums, err := os.ReadFile(filepath.Join(first, "..", "kubectl-5spot.sha256"))
	if want := fmt.Sprintf("%x  %s\n", a, filepath.Base(plugin)); err != nil || string(sums) != want {
		t.Errorf("checksums are %q, %v; want %q", sums, err, want)
	}
}

// TestProgramsAreStatic checks the programs that make build built for this machine.
func TestProgramsAreStatic(t *testing.T) {
	for _, program := range programs {
		static(t, filepath.Join(system.DefaultBin(), program), platforms[runtime.GOOS+"/"+runtime.GOARCH])
	}
	copied(t)
}

// buildPrograms copies the sources to dir, and returns the folder of the programs.
func buildPrograms(t *testing.T, dir string) string {
	t.Helper()
	files, err := output("git", "-C", system.Repository(), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Skipf("the sources cannot be listed: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(system.Repository(), name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	makeIn(t, dir, "image-binaries", "plugin-binaries", "VERSION=v1.2.3", "PLUGIN_PLATFORMS="+foreign)
	return filepath.Join(dir, "out", "image")
}

// static fails if the program needs a file of its file system to start.
func static(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if f.Machine != machine {
		t.Errorf("%s is for %s, want %s", path, f.Machine, machine)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("%s links %v, %v", path, libraries, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s wants a dynamic linker", path)
		}
	}
}

func sum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// copied fails if the image copies other files than the built ones.
func copied(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(system.Repository(), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	want := "COPY"
	for _, program := range programs {
		want += " ${TARGETPLATFORM}/" + program
	}
	if !bytes.Contains(text, []byte("FROM scratch\n")) || !bytes.Contains(text, []byte("\n"+want+" /\n")) {
		t.Errorf("the image is not made of the programs alone, want %q:\n%s", want, text)
	}
}
