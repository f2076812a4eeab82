// SPDX-License-Identifier: Apache-2.0

package hookclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

const (
	// idle is how long an idle connection stays open. It is longer than the longest delay that an extension may
	// request.
	idle = 90 * time.Second
	// pingInterval is after how long without traffic a connection is pinged, and the timeout of the ping. Without
	// it, every call to a host that disappeared would fail for about 15 minutes, until the kernel closes the
	// connection.
	pingInterval = 10 * time.Second
)

// A Client holds the connections to extensions. The zero value is ready for use. It is safe for concurrent use.
type Client struct {
	mu      sync.Mutex
	trusted map[types.UID]*trusted
}

// trusted is an HTTP client and the CA bundle that it trusts.
type trusted struct {
	*http.Client
	bundle []byte
}

// Forget closes the connections to a deleted extension.
func (c *Client) Forget(hook types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.trusted[hook]; t != nil {
		t.CloseIdleConnections()
		delete(c.trusted, hook)
	}
}

// clientFor returns the HTTP client of an extension. It creates a new one when the CA bundle changes.
func (c *Client) clientFor(hook *v1alpha1.MachineDeletionHook) (*http.Client, error) {
	bundle := hook.Spec.ClientConfig.CABundle
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trusted[hook.UID]
	if t != nil && bytes.Equal(t.bundle, bundle) {
		return t.Client, nil
	}
	client, err := newClient(bundle)
	if err != nil {
		return nil, err
	}
	if t != nil {
		t.CloseIdleConnections()
	}
	if c.trusted == nil {
		c.trusted = map[types.UID]*trusted{}
	}
	c.trusted[hook.UID] = &trusted{client, bytes.Clone(bundle)}
	return client, nil
}

// newClient returns an HTTP client that trusts the CA bundle, or the system's CAs without one. It follows no
// redirects: requests are only for the registered endpoint.
func newClient(bundle []byte) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, errors.New("spec.clientConfig.caBundle: no certificate in it")
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			IdleConnTimeout: idle, MaxResponseHeaderBytes: maxAnswer,
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingInterval},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
