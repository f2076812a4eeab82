// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// Certificates is the source of the webhook server's certificate.
type Certificates string

const (
	// CertificatesExternal means that another program, such as cert-manager, creates it and sets the caBundle.
	CertificatesExternal Certificates = "external"
	// CertificatesSelf means that the guard creates it.
	CertificatesSelf Certificates = "self"
)

// Names in the manifests of the guard.
const (
	// Name is the name of its Service, its Deployment and its webhook configuration.
	Name = "fivespot-eviction-guard"
	// SecretName is the name of the Secret with its certificate.
	SecretName = "fivespot-eviction-guard-certificates"
)

const (
	// validity is the lifetime of a certificate. renewal is how long before its end the guard renews it. It is long
	// because a cluster may be switched off for months.
	validity = 365 * 24 * time.Hour
	renewal  = 120 * 24 * time.Hour
	// caKey and pathKey are the keys of the authorities and of the secret path in the kubernetes.io/tls Secret.
	caKey   = "ca.crt"
	pathKey = "path"
)

// certificates reconciles two objects: the Secret that the guard's pods mount, and the caBundle of the webhook
// configuration. All replicas run it: of two concurrent writes, the second gets a conflict.
//
// Each certificate has its own authority, whose key is not stored. The caBundle has the last two authorities: kubelet
// updates a mounted Secret within one or two minutes, and until then a pod serves the earlier certificate.
//
// The path of the webhook is secret and never changes. An API server presents no client certificate, so without the
// secret path every client that reaches the port could mark pods.
type certificates struct {
	live   client.Reader
	write  *actuate.Actuator
	clock  clock.PassiveClock
	secret client.ObjectKey
	// host is the DNS name of the certificate.
	host string

	// path is the path of the webhook, nil until it is known.
	path atomic.Pointer[string]
}

// reconcile updates Secret and webhook configuration once. After an error, the caller retries.
func (c *certificates) reconcile(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := c.live.Get(ctx, c.secret, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", c.secret, err)
	}
	w := &admissionregistrationv1.ValidatingWebhookConfiguration{} // empty if there is none: reconcile runs again later
	if err := c.live.Get(ctx, client.ObjectKey{Name: Name}, w); kinds.IgnoreNoObject(err) != nil {
		return fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", Name, err)
	}
	// If the Secret was deleted, the webhook configuration still has its authority and path.
	var known admissionregistrationv1.WebhookClientConfig
	if len(w.Webhooks) > 0 {
		known = w.Webhooks[0].ClientConfig
	}
	after := secret.DeepCopy()
	if !c.isValid(secret.Data) {
		var err error
		if after.Data, err = c.renewed(cmp.Or(string(secret.Data[caKey]), string(known.CABundle))); err != nil {
			return err
		}
	}
	path := pathOf(secret.Data, known)
	after.Data[pathKey] = []byte(path)
	if err := c.write.PatchLocked(ctx, after, secret); err != nil {
		return err
	}
	c.path.Store(&path)
	return c.publish(ctx, w, after.Data[caKey], path)
}

// requireSecretPath wraps a handler: it answers 404 unless the request has the secret path.
func (c *certificates) requireSecretPath(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if path := c.path.Load(); path == nil || subtle.ConstantTimeCompare([]byte(*path), []byte(req.URL.Path)) != 1 {
			http.NotFound(w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// pathOf returns the path in the Secret, or else in the webhook configuration, or else a new one.
func pathOf(data map[string][]byte, known admissionregistrationv1.WebhookClientConfig) string {
	paths := []string{string(data[pathKey])}
	if known.Service != nil && known.Service.Path != nil {
		paths = append(paths, *known.Service.Path)
	}
	for _, path := range paths {
		if secret, ok := strings.CutPrefix(path, Path+"/"); ok && len(secret) == len(rand.Text()) {
			return path
		}
	}
	return Path + "/" + strings.ToLower(rand.Text()) // the API server requires lower case
}

// isValid reports whether the Secret has a certificate that is valid now and for at least renewal.
func (c *certificates) isValid(data map[string][]byte) bool {
	now := c.clock.Now()
	return !slices.ContainsFunc([]time.Time{now, now.Add(renewal)}, func(at time.Time) bool {
		ok, err := rotator.ValidCert(data[caKey], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], c.host, usages(), at)
		return err != nil || !ok
	})
}

func usages() *[]x509.ExtKeyUsage { return &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// renewed returns new data for the Secret. authorities is the present caBundle.
func (c *certificates) renewed(authorities string) (map[string][]byte, error) {
	r := rotator.CertRotator{CAName: Name, CAOrganization: "5spot.finos.org", DNSName: c.host, ExtKeyUsages: usages()}
	// The clock of an API server may be behind.
	begin, end := c.clock.Now().Add(-time.Hour), c.clock.Now().Add(validity)
	ca, err := r.CreateCACert(begin, end)
	if err != nil {
		return nil, fmt.Errorf("making authority: %w", err)
	}
	cert, key, err := r.CreateCertPEM(ca, begin, end)
	if err != nil {
		return nil, fmt.Errorf("making certificate: %w", err)
	}
	return map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, caKey: append(bytes.Clone(ca.CertPEM), firstOf([]byte(authorities))...)}, nil
}

// firstOf returns the first certificate of a PEM bundle, nil if there is none.
func firstOf(bundle []byte) []byte {
	block, _ := pem.Decode(bundle)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil
	}
	return pem.EncodeToMemory(block)
}

// publish writes caBundle and path to the webhook configuration.
func (c *certificates) publish(ctx context.Context, w *admissionregistrationv1.ValidatingWebhookConfiguration, authority []byte, path string) error {
	before := w.DeepCopy()
	for i := range w.Webhooks {
		w.Webhooks[i].ClientConfig.CABundle = authority
		if service := w.Webhooks[i].ClientConfig.Service; service != nil {
			service.Path = &path
		}
	}
	return c.write.PatchLocked(ctx, w, before)
}

// served returns an error if the directory has no certificate that is valid now.
func served(dir string, now time.Time) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
	switch {
	case err != nil:
		return fmt.Errorf("reading certificate: %w", err)
	case now.Before(pair.Leaf.NotBefore):
		return fmt.Errorf("the certificate in %s is not valid before %s", dir, pair.Leaf.NotBefore.Format(time.RFC3339))
	case !now.Before(pair.Leaf.NotAfter):
		return fmt.Errorf("the certificate in %s has expired at %s", dir, pair.Leaf.NotAfter.Format(time.RFC3339))
	default:
		return nil
	}
}
