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

// caAge bounds how old a certificate authority read from a file may be: an
// authority that the file no longer holds is trusted no longer than this by
// connections yet to be made. One that is missing is read at once.
const caAge = time.Minute

// trust is the connections to one server, whose certificate authority may be
// replaced while the agent runs. Any number of goroutines may use it.
type trust struct {
	// path is the file with the certificate authority; "" means that it never
	// changes and is in config.
	path   string
	now    func() time.Time
	config *tls.Config
	proxy  func(*http.Request) (*url.URL, error)

	mu     sync.Mutex
	pem    []byte
	read   time.Time
	client *http.Client
}

// newTrust reads the file at path, if there is one, for the first time: that it
// is of no use is said when the agent starts.
func newTrust(path string, config *tls.Config, proxy func(*http.Request) (*url.URL, error), now func() time.Time) (*trust, error) {
	t := &trust{path: path, now: now, config: config, proxy: proxy}
	if path == "" {
		t.client = t.build(config.RootCAs)
		return t, nil
	}
	return t, t.reload()
}

// current returns what to send requests by. Fresh asks to look at the file now,
// because the server was not trusted.
func (t *trust) current(fresh bool) *http.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path != "" && (fresh || t.now().Sub(t.read) >= caAge) {
		// A file that is being replaced may be missing or empty for a moment. What
		// was trusted before is, and a server that is not says so itself.
		_ = t.reload()
	}
	return t.client
}

// reload makes new connections of what the file holds, if that changed. Requests
// under way go on by the old ones, whose server was trusted when they began.
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
		// A redirect would carry the token elsewhere; API servers send none.
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
