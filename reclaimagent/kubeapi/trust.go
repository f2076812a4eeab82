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
	"time"
)

// clientTrusting returns a source of HTTP clients for one server, whose certificate authority is in the file at path
// and may be replaced while the agent runs. An empty path means that config holds it and that it never changes. An
// unusable file is an error at the start.
func clientTrusting(path string, config *tls.Config, proxy func(*http.Request) (*url.URL, error), now func() time.Time) (func(fresh bool) *http.Client, error) {
	client := newHTTPClient(config, proxy)
	if path == "" {
		return func(bool) *http.Client { return client }, nil
	}
	var pem []byte
	// load creates a new HTTP client if the file has changed. Requests in progress continue on the old connections.
	load := func() (*http.Client, error) {
		raw, err := os.ReadFile(path) //nolint:gosec // an argument of the agent, or a file of its pod
		if err != nil {
			return nil, fmt.Errorf("reading certificate authority: %w", err)
		}
		pool, err := certPool(raw)
		if err != nil {
			return nil, fmt.Errorf("reading certificate authority %s: %w", path, err)
		}
		if !bytes.Equal(raw, pem) {
			client.CloseIdleConnections()
			config.RootCAs = pool
			pem, client = raw, newHTTPClient(config, proxy)
		}
		return client, nil
	}
	r := renewed[*http.Client]{now: now, load: load}
	_, err := r.get(false)
	return func(fresh bool) *http.Client { c, _ := r.get(fresh); return c }, err
}

func newHTTPClient(config *tls.Config, proxy func(*http.Request) (*url.URL, error)) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	return &http.Client{
		// A redirect would send the token to another server. API servers send no redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               proxy,
			DialContext:         dialer.DialContext,
			TLSClientConfig:     config.Clone(),
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
