// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
)

func object(apiVersion, kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: rest}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// TestAWebhookIsTrustedByWhomItIsInjectedInto has one Certificate issued, and a webhook and
// a CRD given its authority. A second pass writes nothing.
func TestAWebhookIsTrustedByWhomItIsInjectedInto(t *testing.T) {
	config := func() map[string]any { return map[string]any{"service": map[string]any{"name": "webhook"}} }
	webhook := object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "one",
		map[string]any{"webhooks": []any{map[string]any{"clientConfig": config()}}})
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "two",
		map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": config()}}}})
	other := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "other", map[string]any{"spec": map[string]any{}})
	for _, u := range []*unstructured.Unstructured{webhook, crd} {
		u.SetAnnotations(map[string]string{injectFrom: "system/serving"})
	}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), webhook, crd, other,
		object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "none", map[string]any{}),
		object("cert-manager.io/v1", "Certificate", "system", "serving",
			map[string]any{"spec": map[string]any{"secretName": "serving-cert", "dnsNames": []any{"webhook.system.svc"}}}))

	if err := pass(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	secret, err := client.Resource(secrets).Namespace("system").Get(t.Context(), "serving-cert", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, secret, "webhook.system.svc")
	authority, _, _ := unstructured.NestedString(secret.Object, "data", "ca.crt")
	for i, name := range map[int]string{1: "one", 2: "two"} {
		u, err := client.Resource(injectable[i]).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := clientConfigs(u); len(got) != 1 || got[0]["caBundle"] != authority {
			t.Errorf("%s does not trust who signed: %v", name, got)
		}
	}

	client.ClearActions()
	if err := pass(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			t.Errorf("a second pass wrote: %v", a)
		}
	}
}

// verify checks a certificate as an API server does that calls a webhook by its name.
func verify(t *testing.T, secret *unstructured.Unstructured, name string) {
	t.Helper()
	data := map[string][]byte{}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		encoded, _, _ := unstructured.NestedString(secret.Object, "data", key)
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		data[key] = text
	}
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data["ca.crt"])
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
		t.Error(err)
	}
}
