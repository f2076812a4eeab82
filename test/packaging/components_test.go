// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	prefix    = "fivespot-"
	namespace = "5spot-system"
)

// build returns the objects of an installation in a management cluster.
var build = sync.OnceValues(func() ([]byte, error) { return kustomize("default") })

// kustomize builds a directory of config, by kubectl if only the plane has been built.
func kustomize(directory string) ([]byte, error) {
	command := []string{filepath.Join(plane.DefaultBin(), "kubectl"), "kustomize"}
	tools, err := filepath.Glob(filepath.Join(system.Repository(), "bin", "tools", "kustomize-*"))
	if err == nil && len(tools) > 0 {
		command = []string{tools[0], "build"}
	}
	return output(append(command, filepath.Join(system.Repository(), "config", directory))...)
}

func output(command ...string) ([]byte, error) {
	out, err := exec.CommandContext(context.Background(), command[0], command[1:]...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, errors.New(strings.Join(command, " ") + ": " + string(exit.Stderr))
	}
	return out, err
}

func components(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	text, err := build()
	if err != nil {
		t.Fatal(err)
	}
	// The API server rejects a label with a variable, which clusterctl substitutes.
	return decode(t, bytes.ReplaceAll(text, []byte("${FIVESPOT_POD_SECURITY:=restricted}"), []byte("restricted")))
}

func decode(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := plane.Objects(text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// only returns the one object of a kind.
func only(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, u := range components(t) {
		if u.GetKind() == kind {
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s, want one", len(found), kind)
	}
	return found[0]
}

// named returns the object of a kind and name.
func named(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, u := range components(t) {
		if u.GetKind() == kind && u.GetName() == name {
			return u
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return deploymentOf(t, []*unstructured.Unstructured{only(t, "Deployment")})
}

// unprefixed kinds have names without 5-Spot's prefix.
var unprefixed = []string{"Namespace", "CustomResourceDefinition"}

func TestObjectsFollowClusterctlsRules(t *testing.T) {
	clusterScoped := append([]string{"ClusterRole", "ClusterRoleBinding", "ValidatingWebhookConfiguration"}, unprefixed...)
	for _, u := range components(t) {
		what := u.GetKind() + " " + u.GetName()
		if got := u.GetLabels()["cluster.x-k8s.io/provider"]; got != "addon-5spot" {
			t.Errorf("%s: provider label is %q", what, got)
		}
		if !slices.Contains(unprefixed, u.GetKind()) && !strings.HasPrefix(u.GetName(), prefix) {
			t.Errorf("%s: name without %s", what, prefix)
		}
		want := namespace
		if slices.Contains(clusterScoped, u.GetKind()) {
			want = ""
		}
		if u.GetNamespace() != want {
			t.Errorf("%s: in namespace %q, want %q", what, u.GetNamespace(), want)
		}
	}
	if got := only(t, "Namespace").GetName(); got != namespace {
		t.Errorf("Namespace is %s, want %s", got, namespace)
	}
}

func TestManagerRunsWithItsRights(t *testing.T) {
	account := only(t, "ServiceAccount")
	if got := deployment(t).Spec.Template.Spec.ServiceAccountName; got != account.GetName() {
		t.Errorf("the manager runs as %s, want %s", got, account.GetName())
	}
	for _, u := range components(t) {
		if !strings.HasSuffix(u.GetKind(), "RoleBinding") {
			continue
		}
		subjects, _, err := unstructured.NestedSlice(u.Object, "subjects")
		if err != nil || len(subjects) != 1 {
			t.Fatalf("%s: subjects %v, %v", u.GetName(), subjects, err)
		}
		subject, _ := subjects[0].(map[string]any)
		if subject["kind"] != "ServiceAccount" || subject["name"] != account.GetName() || subject["namespace"] != namespace {
			t.Errorf("%s: subject is %v", u.GetName(), subject)
		}
		role, _, _ := unstructured.NestedStringMap(u.Object, "roleRef")
		named(t, role["kind"], role["name"])
	}
}

// TestTheRuntimeExtensionFindsItsParts compares the names in controllers/extensionconfig, and its permissions, with the
// installed objects.
func TestTheRuntimeExtensionFindsItsParts(t *testing.T) {
	for kind, name := range map[string]string{
		"Service":                        "fivespot-webhook-service",
		"Deployment":                     "fivespot-controller-manager",
		"ValidatingWebhookConfiguration": "fivespot-validating-webhook-configuration",
	} {
		if got := only(t, kind).GetName(); got != name {
			t.Errorf("%s is called %s, the manager looks for %s", kind, got, name)
		}
	}
	for role, name := range map[*unstructured.Unstructured]string{
		only(t, "Role"): "fivespot-controller-manager", named(t, "ClusterRole", "fivespot-manager-role"): "fivespot-validating-webhook-configuration",
	} {
		rules, err := json.Marshal(role.Object["rules"])
		if err != nil || !bytes.Contains(rules, []byte(`"resourceNames":["`+name+`"]`)) {
			t.Errorf("the manager may not read %s: %s, %v", name, rules, err)
		}
	}
}

// variable matches a clusterctl variable with its default.
var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+):=([^}]*)\}`)

func TestFlagsExistAndVariablesHaveDefaults(t *testing.T) {
	known, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "reference", "flags.md"))
	if err != nil {
		t.Fatal(err)
	}
	d := deployment(t)
	if n := len(d.Spec.Template.Spec.Containers); n != 1 || d.Spec.Template.Spec.Containers[0].Name != "manager" {
		t.Fatalf("%d containers, or not called manager", n)
	}
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		name, _, _ := strings.Cut(arg, "=")
		if !strings.Contains(string(known), "`"+name+"`") {
			t.Errorf("the manager has no flag %s", name)
		}
		for _, m := range variable.FindAllStringSubmatch(arg, -1) {
			if !strings.HasPrefix(m[1], "FIVESPOT_") || m[2] == "" {
				t.Errorf("%s: variable %s with default %q", arg, m[1], m[2])
			}
		}
		if strings.Contains(variable.ReplaceAllString(arg, ""), "${") {
			t.Errorf("%s: a variable without a default", arg)
		}
	}
}

func TestClusterctlFillsVariablesIn(t *testing.T) {
	filled := filledIn(t, "default")
	if len(filled) != len(components(t)) {
		t.Errorf("clusterctl makes %d objects of %d", len(filled), len(components(t)))
	}
	args := deploymentOf(t, filled).Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--watch-filter=", "--namespace=", "--v=2"} {
		if !slices.Contains(args, want) {
			t.Errorf("without variables the manager serves everything: no %q in %q", want, args)
		}
	}
}

func TestWebhookIsReachedAndTrusted(t *testing.T) {
	service, certificate := only(t, "Service"), only(t, "Certificate")
	template := deployment(t).Spec.Template
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	for k, v := range selector {
		if template.Labels[k] != v {
			t.Errorf("Service selects %s=%s, the pods have %q", k, v, template.Labels[k])
		}
	}
	port := template.Spec.Containers[0].Ports
	if !slices.ContainsFunc(port, func(p corev1.ContainerPort) bool { return p.Name == "webhook-server" && p.ContainerPort == 9443 }) {
		t.Errorf("no port webhook-server: %v", port)
	}
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	host := service.GetName() + "." + namespace + ".svc"
	if !slices.Equal(names, []string{host, host + ".cluster.local"}) {
		t.Errorf("certificate is for %v, want %s", names, host)
	}
	secret, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if got := template.Spec.Volumes[0].Secret.SecretName; got != secret {
		t.Errorf("the manager mounts %s, cert-manager writes %s", got, secret)
	}
	issuer, _, _ := unstructured.NestedString(certificate.Object, "spec", "issuerRef", "name")
	if issuer != only(t, "Issuer").GetName() {
		t.Errorf("no Issuer %s", issuer)
	}
	config := only(t, "ValidatingWebhookConfiguration")
	if got, want := config.GetAnnotations()["cert-manager.io/inject-ca-from"], namespace+"/"+certificate.GetName(); got != want {
		t.Errorf("the webhook's CA comes from %q, want %s", got, want)
	}
	b, err := json.Marshal(config)
	if err != nil || !bytes.Contains(b, []byte(`"name":"`+service.GetName()+`","namespace":"`+namespace+`"`)) {
		t.Errorf("the webhook does not call %s: %s, %v", service.GetName(), b, err)
	}
}
