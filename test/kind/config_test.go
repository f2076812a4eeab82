// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
)

const (
	configFile  = "config/5spot.yaml"
	offlineFile = "config/offline.yaml"
	repository  = "../.."
)

// load reads the config as the suite does.
func load(t *testing.T) *clusterctl.E2EConfig {
	t.Helper()
	return loadFile(t, configFile)
}

func loadFile(t *testing.T, path string) *clusterctl.E2EConfig {
	t.Helper()
	gomega.RegisterTestingT(t)
	return clusterctl.LoadE2EConfig(context.Background(), clusterctl.LoadE2EConfigInput{ConfigPath: path})
}

// TestConfigIsComplete loads the config with the framework and checks that its files exist. It also checks errors that
// the framework would only find later.
func TestConfigIsComplete(t *testing.T) {
	c := load(t)
	if got := c.AddonProviders(); len(got) != 1 || got[0] != "5spot" {
		t.Errorf("the add-ons are %v, not 5spot", got)
	}
	for _, variable := range []string{"KUBERNETES_VERSION", "KUBERNETES_VERSION_MANAGEMENT", cni} {
		if _, ok := c.Variables[variable]; !ok {
			t.Errorf("%s is not set", variable)
		}
	}
	for _, interval := range []string{"wait-controllers", "wait-cluster", "wait-control-plane", "wait-delete-cluster", "step"} {
		if c.GetIntervals("default", interval) == nil {
			t.Errorf("there is no interval %s", interval)
		}
	}
	files := map[string]bool{}
	for _, p := range c.Providers {
		for _, v := range p.Versions {
			for _, f := range v.Files {
				files[p.Name+"/"+f.TargetName] = true
			}
			if !files[p.Name+"/metadata.yaml"] {
				t.Errorf("%s %s has no metadata.yaml", p.Type, p.Name)
			}
		}
	}
	if want := "docker/cluster-template-" + flavor + ".yaml"; !files[want] {
		t.Errorf("clusterctl will not find %s among %v", want, files)
	}
}

// TestVersionsAreThoseOfTheModules compares the installed versions with the versions in go.mod.
func TestVersionsAreThoseOfTheModules(t *testing.T) {
	version := required(t, "go.mod", "sigs.k8s.io/cluster-api")
	for _, p := range load(t).Providers {
		for _, v := range p.Versions {
			if p.Name != "5spot" && (v.Name != version || !strings.Contains(v.Value, "/"+version+"/")) {
				t.Errorf("%s %s is %s from %s, go.mod has %s", p.Type, p.Name, v.Name, v.Value, version)
			}
		}
	}
}

// required is the version of a module that a go.mod requires.
func required(t *testing.T, file, module string) string {
	t.Helper()
	mod, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatalf("%s does not require %s", file, module)
	}
	return string(m[1])
}

// TestOfflineIsTheSameSuite checks that the offline config differs only where a machine without registries requires it:
// in locally built manifests and images.
func TestOfflineIsTheSameSuite(t *testing.T) {
	want, got := load(t), loadFile(t, offlineFile)
	for _, variable := range []string{"KUBERNETES_VERSION", "KUBERNETES_VERSION_MANAGEMENT"} {
		if kube := required(t, repository+"/hack/kube/go.mod", "k8s.io/kubernetes"); got.Variables[variable] != kube {
			t.Errorf("%s is %s, and the node image has %s", variable, got.Variables[variable], kube)
		}
		want.Variables[variable] = got.Variables[variable]
	}
	loaded := map[string]bool{}
	for _, i := range got.Images {
		loaded[i.Name] = true
	}
	for i, p := range got.Providers {
		v := &p.Versions[0]
		if p.Name == "5spot" {
			continue
		}
		made := filepath.Join(plane.DefaultBin(), "manifests", filepath.Base(v.Value))
		text, err := os.ReadFile(made)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*image: (\S+)$`).FindAllSubmatch(text, -1) {
			if !loaded[string(m[1])] {
				t.Errorf("%s %s wants the image %s, which is not loaded", p.Type, p.Name, m[1])
			}
		}
		v.Value, v.Replacements = want.Providers[i].Versions[0].Value, nil
	}
	got.Images = got.Images[:len(want.Images)]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-%s, +%s:\n%s", configFile, offlineFile, diff)
	}
}

// release creates a release of the image that the config loads, and returns its folder.
func release(t *testing.T, c *clusterctl.E2EConfig) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "make", "-C", repository, "release-manifests", "OUT="+dir, "IMAGE="+c.Images[0].Name).CombinedOutput()
	if err != nil {
		t.Fatalf("make release-manifests: %v\n%s", err, out)
	}
	return dir
}

// TestReleaseHasWhatTheConfigNames checks the folder where make test-e2e-kind creates the release.
func TestReleaseHasWhatTheConfigNames(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	c := load(t)
	dir := release(t, c)
	for _, p := range c.Providers {
		if p.Name != "5spot" {
			continue
		}
		folder, file := filepath.Split(p.Versions[0].Value)
		relative, err := filepath.Rel(repository, folder)
		if err != nil || !strings.Contains(string(makefile), "OUT=$(CURDIR)/"+relative+" ") {
			t.Errorf("make does not write the release to %s: %v", relative, err)
		}
		components, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(components), "image: "+c.Images[0].Name+"\n") {
			t.Errorf("%s does not use the image that is loaded: %v", file, err)
		}
	}
}

// TestTemplateIsFound creates the suite's repository from local components, and fills in the template of the Cluster
// from it with clusterctl.
func TestTemplateIsFound(t *testing.T) {
	c := load(t)
	here := map[string]string{
		"CoreProvider": "capi-core", "BootstrapProvider": "capi-kubeadm-bootstrap",
		"ControlPlaneProvider": "capi-kubeadm-control-plane", "InfrastructureProvider": "capi-dev",
	}
	infrastructure := ""
	for _, p := range c.Providers {
		p.Versions[0].Value = filepath.Join(plane.DefaultBin(), "manifests", here[p.Type]+".yaml")
		switch p.Type {
		case "AddonProvider":
			p.Versions[0].Value = filepath.Join(release(t, c), "addon-components.yaml")
		case "InfrastructureProvider":
			infrastructure = p.Name + ":" + p.Versions[0].Name
		}
	}
	dir := t.TempDir()
	input := template(c, clusterctl.CreateRepository(t.Context(), clusterctl.CreateRepositoryInput{
		E2EConfig: c, RepositoryFolder: filepath.Join(dir, "repository"),
	}), "", dir)
	input.InfrastructureProvider = infrastructure // no version is installed
	objects, err := plane.Objects(clusterctl.ConfigCluster(t.Context(), input))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, u := range objects {
		kinds = append(kinds, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
	}
	for _, want := range []string{"Cluster fivespot/fivespot", "KubeadmControlPlane fivespot/fivespot", "ScheduledMachine fivespot/fivespot-desk-1"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("the template makes no %s, but %v", want, kinds)
		}
	}
}
