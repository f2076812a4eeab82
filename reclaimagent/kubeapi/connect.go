// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Where a pod finds its service account, and under which variables its API
// server. See "Accessing the Kubernetes API from a Pod".
const (
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	hostEnv    = "KUBERNETES_SERVICE_HOST"
	portEnv    = "KUBERNETES_SERVICE_PORT"
)

// ErrNotInCluster reports that the process is not in a pod.
var ErrNotInCluster = errors.New("not in a pod, and no kubeconfig given")

// tokenAge bounds how old a token read from a file may be. The kubelet renews
// it at 80 % of its life of an hour or more; client-go reads as often.
const tokenAge = time.Minute

// Options are what a Client needs from outside.
type Options struct {
	// Now is the clock. It is required.
	Now func() time.Time
	// Getenv reads the environment. It is required by [InCluster].
	Getenv func(string) string
	// AccountDir is where the service account is; "" means where pods have it.
	AccountDir string
}

// InCluster returns a client with the service account of the pod. Outside a pod
// the error wraps [ErrNotInCluster].
func InCluster(o Options) (*Client, error) {
	host, port := o.Getenv(hostEnv), o.Getenv(portEnv)
	if host == "" || port == "" {
		return nil, fmt.Errorf("%w: %s and %s are not set", ErrNotInCluster, hostEnv, portEnv)
	}
	dir := o.AccountDir
	if dir == "" {
		dir = accountDir
	}
	ca, err := os.ReadFile(dir + "/ca.crt") //nolint:gosec // where the kubelet puts it
	if err != nil {
		return nil, fmt.Errorf("reading service account: %w", err)
	}
	pool, err := certPool(ca)
	if err != nil {
		return nil, err
	}
	token := &fileToken{path: dir + "/token", now: o.Now}
	if _, err := token.Token(false); err != nil {
		return nil, fmt.Errorf("reading service account: %w", err)
	}
	base := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}
	return newClient(base, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, http.ProxyFromEnvironment, token), nil
}

func newClient(base *url.URL, config *tls.Config, proxy func(*http.Request) (*url.URL, error), token TokenSource) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	return &Client{base: base, token: token, http: &http.Client{
		// A redirect would carry the token elsewhere; API servers send none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               proxy,
			DialContext:         dialer.DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: dialTimeout,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 2,
			IdleConnTimeout:     idleTimeout,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
	}}
}

func certPool(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("certificate authority holds no certificate")
	}
	return pool, nil
}

// fixedToken never changes.
type fixedToken string

func (t fixedToken) Token(bool) (string, error) { return string(t), nil }

// fileToken reads a token that is renewed on disk.
type fileToken struct {
	path string
	now  func() time.Time

	mu    sync.Mutex
	token string
	read  time.Time
}

// Token implements TokenSource. If the file cannot be read, a token that was
// read before is better than none.
func (t *fileToken) Token(fresh bool) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if t.token != "" && !fresh && now.Sub(t.read) < tokenAge {
		return t.token, nil
	}
	raw, err := os.ReadFile(t.path)
	if err == nil && strings.TrimSpace(string(raw)) == "" {
		err = fmt.Errorf("token file %s is empty", t.path)
	}
	if err != nil {
		if t.token != "" {
			return t.token, nil
		}
		return "", err
	}
	t.token, t.read = strings.TrimSpace(string(raw)), now
	return t.token, nil
}
