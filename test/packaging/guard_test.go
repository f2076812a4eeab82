// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTheGuardIsTheSameWhoeverInstallsIt compares the manager's objects with kustomize's.
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

// TestTheGuardsComponentsGoTogether builds the guard with cert-manager's certificate and with failurePolicy Fail.
func TestTheGuardsComponentsGoTogether(t *testing.T) {
	dir := t.TempDir()
	folder, err := filepath.Rel(dir, filepath.Join(system.Repository(), "config", "eviction-guard"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s]\ncomponents: [%[1]s/cert-manager, %[1]s/fail]\n", folder)
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

// TestTheGuardIsRemoved runs the commands of docs/operators.md after an installation, including objects that a running
// guard adds.
func TestTheGuardIsRemoved(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "operators.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Turn it off\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 3 {
		t.Fatalf("the section has %d blocks of commands, want one for the policies, one for the guard, and one for what stays", len(blocks))
	}
	text, err := kustomize("eviction-guard")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "guard.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := shared.NewCluster(t.Context(), "removal", plane.ClusterOptions{NoScheduler: true}) // Other tests install a part of it.
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	run := func(commands string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
		cmd.Env = append(own.Environ(home), "PATH="+plane.DefaultBin()+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", commands, err, out)
		}
		return string(out)
	}
	const all = `kubectl get "$(kubectl api-resources --verbs=list -o name | grep -Ev '^(events|componentstatuses|endpoints)' | paste -sd,)" -A -o name -l `
	run("kubectl apply --server-side -f " + file + `
kubectl wait --for=condition=Established crd -l app.kubernetes.io/component=eviction-guard
kubectl create namespace guarded
kubectl label namespace guarded 5spot.finos.org/eviction-guard=enabled
kubectl apply -f - <<'EOF'
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: eviction-guard-leader-election-5spot, namespace: 5spot-system}
EOF`)
	for _, block := range blocks {
		run(block[1])
	}
	if left := run(all + "app.kubernetes.io/component=eviction-guard"); strings.TrimSpace(left) != "namespace/5spot-system" {
		t.Errorf("it is not removed, and no Namespace:\n%s", left)
	}
	if left := run(all+"5spot.finos.org/eviction-guard") + run("kubectl -n 5spot-system get leases -o name"); left != "" {
		t.Errorf("it is not removed:\n%s", left)
	}
}
