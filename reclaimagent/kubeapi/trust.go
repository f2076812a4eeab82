// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// caAge is the maximum age of a certificate authority that was read from a file. New connections trust an authority
// that was removed from the file no longer than this. If a server is not trusted, the file is read at once.
const caAge = time.Minute

// trust holds the HTTP client for one server, whose certificate authority may be replaced while the agent runs. It is
// safe for concurrent use.
type trust struct {
	// path is the file with the certificate authority. "" means that config holds it and that it never changes.
	path   string
	now    func() time.Time
	config *tls.Config
	proxy  func(*http.Request) (*url.URL, error)

	mu     sync.Mutex
	pem    []byte
	read   time.Time
	client *http.Client
}

// newTrust reads the file at path, if any, so that an unusable file is an error at the start.
func newTrust(path string, config *tls.Config, proxy func(*http.Request) (*url.URL, error), now func() time.Time) (*trust, error) {
	t := &trust{path: path, now: now, config: config, proxy: proxy}
	if path == "" {
		t.client = t.build(config.RootCAs)
		return t, nil
	}
	return t, t.reload()
}

// current returns the HTTP client. fresh reads the file again, because the server was not trusted.
func (t *trust) current(fresh bool) *http.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path != "" && (fresh || t.now().Sub(t.read) >= caAge) {
		// A file that is being replaced may be missing or empty. The old authority is kept, and the error of an
		// untrusted server shows the problem.
		_ = t.reload()
	}
	return t.client
}

// reload creates a new HTTP client if the file has changed. Requests in progress continue on the old connections.
func (t *trust) reload() error {
	raw, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("reading certificate authority: %w", err)
	}
	pool, err := certPool(raw)
	if err != nil {
		return fmt.Errorf("reading certificate authority %s: %w", t.path, err)
	}
	t.read = t.now()
	if t.client != nil && bytes.Equal(raw, t.pem) {
		return nil
	}
	if t.client != nil {
		t.client.CloseIdleConnections()
	}
	t.pem, t.client = raw, t.build(pool)
	return nil
}

func (t *trust) build(roots *x509.CertPool) *http.Client {
	config := t.config.Clone()
	config.RootCAs = roots
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	return &http.Client{
		// A redirect would send the token to another server. API servers send no redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               t.proxy,
			DialContext:         dialer.DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: dialTimeout,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 2,
			IdleConnTimeout:     idleTimeout,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
	}
}

// untrusted reports whether err is about the server's certificate.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

func certPool(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("it holds no certificate")
	}
	return pool, nil
}
