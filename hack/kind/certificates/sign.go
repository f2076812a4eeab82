// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// lifetime exceeds the lifetime of a test cluster. leeway allows for clocks that are a little behind.
const (
	lifetime = 30 * 24 * time.Hour
	leeway   = time.Hour
)

// sign returns a certificate for names that is its own authority, and its key, as PEM.
func sign(names []string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now() //nolint:forbidigo // certificates are for now
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "self-signed"}, DNSNames: names,
		NotBefore: now.Add(-leeway), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err = x509.CreateCertificate(rand.Reader, t, t, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), err
}

// inject writes an authority to every webhook of o, and reports whether that changed it.
func inject(o *unstructured.Unstructured, authority string) bool {
	changed := false
	for _, c := range clientConfigs(o) {
		if c["caBundle"] != authority {
			c["caBundle"], changed = authority, true
		}
	}
	return changed
}

// clientConfigs returns the clientConfig of every webhook of o. The results share memory with o.
func clientConfigs(o *unstructured.Unstructured) []map[string]any {
	var found []map[string]any
	add := func(v any) {
		if c, ok := v.(map[string]any); ok {
			found = append(found, c)
		}
	}
	webhooks, _ := o.Object["webhooks"].([]any)
	for _, w := range webhooks {
		if w, ok := w.(map[string]any); ok {
			add(w["clientConfig"])
		}
	}
	conversion, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "conversion", "webhook", "clientConfig")
	add(conversion)
	return found
}
