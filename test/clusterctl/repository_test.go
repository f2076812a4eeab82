// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// Two releases of the same components, and the registry of their image.
const (
	first, second = "v0.1.0", "v0.1.1"
	mirror        = "mirror.example.org"
)

// A user has a clusterctl.yaml, and releases in a folder.
type user struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // the context of its one test
	// plane is the plane of which the user is administrator.
	plane      *plane.Plane
	home, repo string
}

// newUser creates the releases as in docs/install.md, and configures clusterctl.
func newUser(ctx context.Context, t *testing.T, p *plane.Plane) *user {
	t.Helper()
	u := &user{t: t, ctx: ctx, plane: p, home: t.TempDir(), repo: t.TempDir()}
	u.must(os.MkdirAll(u.path("addon-5spot", first), 0o700))
	for _, version := range []string{first, second} {
		u.run("make", "-C", system.Repository(), "release-manifests", "VERSION="+version, "OUT="+u.path("addon-5spot", version))
	}
	u.write(u.path("cluster-api", "v1.14.2", "core-components.yaml"), u.read(filepath.Join(plane.DefaultBin(), "manifests", "capi-core.yaml")))
	u.write(u.path("cluster-api", "v1.14.2", "metadata.yaml"), `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
- {major: 1, minor: 14, contract: v1beta2}
`)
	u.write(u.config(), fmt.Sprintf(`cert-manager: {externallyProvisioned: true}
overridesFolder: %[1]s/overrides
images: {addon-5spot: {repository: %[2]s}}
providers:
- {name: cluster-api, type: CoreProvider, url: "file://%[1]s/cluster-api/v1.14.2/core-components.yaml"}
- {name: 5spot, type: AddonProvider, url: "file://%[1]s/addon-5spot/%[3]s/addon-components.yaml"}
`, u.repo, mirror, first))
	return u
}

func (u *user) path(elem ...string) string {
	return filepath.Join(append([]string{u.repo}, elem...)...)
}

// config is the path of clusterctl.yaml.
func (u *user) config() string { return filepath.Join(u.home, "cluster-api", "clusterctl.yaml") }

func (u *user) read(path string) string {
	u.t.Helper()
	text, err := os.ReadFile(path)
	u.must(err)
	return string(text)
}

func (u *user) write(path, text string) {
	u.t.Helper()
	u.must(os.MkdirAll(filepath.Dir(path), 0o700))
	u.must(os.WriteFile(path, []byte(text), 0o600))
}

// run runs a program as the administrator of the management cluster.
func (u *user) run(name string, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.ctx, name, args...)
	cmd.Env = u.plane.Management.Environ(u.home)
	cmd.Dir = u.path("addon-5spot", first)
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// follow runs the first commands below a heading of a page.
func (u *user) follow(page, heading string) string {
	u.t.Helper()
	_, section, _ := strings.Cut(u.read(filepath.Join(system.Repository(), page)), "# "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	m := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(section)
	if m == nil {
		u.t.Fatalf("%s has no commands under %s", page, heading)
	}
	// clusterctl tests cert-manager in a namespace, and fails if that is being deleted.
	u.must(u.plane.Management.WaitGone(u.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cert-manager-test"}}))
	begin := time.Now()
	out := u.run("sh", "-euc", m[1])
	u.t.Logf("%s takes %v", heading, time.Since(begin).Round(100*time.Millisecond))
	return out
}

func (u *user) must(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
}

// certManager installs the kinds that clusterctl requires, without a controller.
func (u *user) certManager() {
	u.t.Helper()
	for plural, kind := range map[string]string{"issuers": "Issuer", "certificates": "Certificate"} {
		u.must(u.plane.Management.InstallCRDs(u.ctx, fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: %s, plural: %s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, kind, plural)))
	}
}
