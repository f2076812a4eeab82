// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTheGuardIsTheSameWhoeverInstallsIt compares what the manager installs with what
// kustomize builds.
func TestTheGuardIsTheSameWhoeverInstallsIt(t *testing.T) {
	embedded, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	text, err := kustomize("eviction-guard")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byName(decode(t, text)), normal(t, embedded)); diff != "" {
		t.Errorf("-as kustomize builds it, +as the manager installs it:\n%s", diff)
	}
}

// TestTheGuardsComponentsGoTogether builds the guard with cert-manager's certificate, and
// with evictions that fail without it.
func TestTheGuardsComponentsGoTogether(t *testing.T) {
	dir := t.TempDir()
	guard, err := filepath.Rel(dir, filepath.Join(system.Repository(), "config", "eviction-guard"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s]\ncomponents: [%[1]s/cert-manager, %[1]s/fail]\n", guard)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(filepath.Join(system.Repository(), "config"), dir)
	if err != nil {
		t.Fatal(err)
	}
	built, err := kustomize(relative)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--certificates=external", "failurePolicy: Fail", "cert-manager.io/inject-ca-from: 5spot-system/fivespot-eviction-guard", "kind: Certificate", "kind: Issuer"} {
		if !strings.Contains(string(built), want) {
			t.Errorf("there is no %s", want)
		}
	}
	for _, gone := range []string{"kind: Secret", "--certificates=self", "- secrets\n", "- validatingwebhookconfigurations\n"} {
		if strings.Contains(string(built), gone) {
			t.Errorf("the guard needs no %s", gone)
		}
	}
}
