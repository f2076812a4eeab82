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

// Certificates says who makes the certificate of the webhook server.
type Certificates string

const (
	// CertificatesExternal means that somebody else does, and tells the API server.
	CertificatesExternal Certificates = "external"
	// CertificatesSelf means that the guard does.
	CertificatesSelf Certificates = "self"
)

// What the manifests call the things of the guard.
const (
	// Name is that of its Service, its Deployment and its webhook configuration.
	Name = "fivespot-eviction-guard"
	// SecretName is that of the Secret with its certificate.
	SecretName = "fivespot-eviction-guard-certificates"
)

const (
	// validity is how long a certificate is good for, and renewal how long before its end there is
	// another. In between everybody has a few months to be up once.
	validity = 365 * 24 * time.Hour
	renewal  = 120 * 24 * time.Hour
	// certFile and keyFile are what kubelets, cert-manager and people call them, caKey is the
	// Secret's key for those who signed it, and pathKey that for the path that nobody guesses.
	certFile = "tls.crt"
	keyFile  = "tls.key"
	caKey    = "ca.crt"
	pathKey  = "path"
)

// certificates keeps the Secret that the pods of the guard mount, and tells the API server whom to
// trust. Every replica does: each write is refused where another came first.
//
// A certificate is signed by an authority of its own, whose key nobody keeps. The API server trusts
// the last two of them: a kubelet takes a minute or two to give a pod what is in the Secret, and
// until then the pod answers with the earlier certificate.
//
// The path at which the API server asks is made with the first certificate, and stays: an API server shows no
// certificate of its own, and whoever else reaches the port of the guard has no operator asked for anything.
type certificates struct {
	live   client.Reader
	write  *actuate.Actuator
	clock  clock.PassiveClock
	secret client.ObjectKey
	// hosts are the names by which the API server calls the guard.
	hosts []string

	// path is where the API server asks, nil if nobody knows yet.
	path atomic.Pointer[string]
}

// keep looks once, and does what is due. After an error, a conflict among them, it is to be called again.
func (c *certificates) keep(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := c.live.Get(ctx, c.secret, secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", c.secret, err)
	}
	w, err := c.webhook(ctx)
	if err != nil {
		return err
	}
	after, known := secret.DeepCopy(), clientConfig(w) // Of a Secret that was deleted, the API server knows what it said.
	if !c.good(secret.Data) {
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
	return c.tell(ctx, w, after.Data[caKey], path)
}

// only answers those who know the path.
func (c *certificates) only(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if path := c.path.Load(); path == nil || subtle.ConstantTimeCompare([]byte(*path), []byte(req.URL.Path)) != 1 {
			http.NotFound(w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// pathOf is where the API server asks: what the Secret says, or else the configuration, or else a new one.
func pathOf(data map[string][]byte, known admissionregistrationv1.WebhookClientConfig) string {
	said := []string{string(data[pathKey])}
	if known.Service != nil && known.Service.Path != nil {
		said = append(said, *known.Service.Path)
	}
	for _, path := range said {
		if secret, ok := strings.CutPrefix(path, Path+"/"); ok && len(secret) == len(rand.Text()) {
			return path
		}
	}
	return Path + "/" + strings.ToLower(rand.Text()) // As the API server wants it.
}

// good reports whether a Secret has a certificate that is valid, and need not be renewed yet. One that was
// made by a clock that was ahead is not valid.
func (c *certificates) good(data map[string][]byte) bool {
	now := c.clock.Now()
	for _, host := range c.hosts {
		for _, at := range []time.Time{now, now.Add(renewal)} {
			if ok, err := rotator.ValidCert(data[caKey], data[certFile], data[keyFile], host, usages(), at); err != nil || !ok {
				return false
			}
		}
	}
	return true
}

func usages() *[]x509.ExtKeyUsage { return &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// renewed is what a Secret has after a renewal. authorities are those that were trusted before.
func (c *certificates) renewed(authorities string) (map[string][]byte, error) {
	r := rotator.CertRotator{
		CAName: Name, CAOrganization: "5spot.finos.org", DNSName: c.hosts[0], ExtraDNSNames: c.hosts[1:], ExtKeyUsages: usages(),
	}
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
	return map[string][]byte{certFile: cert, keyFile: key, caKey: append(bytes.Clone(ca.CertPEM), firstOf([]byte(authorities))...)}, nil
}

// firstOf is the first certificate of several, nil if there is none.
func firstOf(several []byte) []byte {
	block, _ := pem.Decode(several)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil
	}
	return pem.EncodeToMemory(block)
}

// webhook is the configuration by which the API server asks, nil if there is none.
func (c *certificates) webhook(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	w := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	switch err := c.live.Get(ctx, client.ObjectKey{Name: Name}, w); {
	case kinds.NoObject(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", Name, err)
	}
	return w, nil
}

// clientConfig says where the API server asks, and whom it trusts.
func clientConfig(w *admissionregistrationv1.ValidatingWebhookConfiguration) (c admissionregistrationv1.WebhookClientConfig) {
	if w == nil || len(w.Webhooks) == 0 {
		return c
	}
	return w.Webhooks[0].ClientConfig
}

// tell has the API server trust an authority, and ask at a path. A configuration that does not exist yet is told
// later.
func (c *certificates) tell(ctx context.Context, w *admissionregistrationv1.ValidatingWebhookConfiguration, authority []byte, path string) error {
	if w == nil {
		return nil
	}
	before := w.DeepCopy()
	for i := range w.Webhooks {
		w.Webhooks[i].ClientConfig.CABundle = authority
		if service := w.Webhooks[i].ClientConfig.Service; service != nil {
			service.Path = &path
		}
	}
	return c.write.PatchLocked(ctx, w, before)
}

// served reports what is wrong with the certificate in a directory; nil is nothing.
func served(dir string, now time.Time) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
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
