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
	// idle is how long a connection is kept for the next call: longer than an extension
	// may ask to wait.
	idle = 90 * time.Second
	// silence is after how long without a word a connection is tried, and how long an
	// answer to that may take. A host that went away without a word would otherwise fail
	// every call until the kernel gives up, which takes a quarter of an hour.
	silence = 10 * time.Second
)

// A Client keeps the connections to extensions. The zero value is ready for use, and it
// is safe for concurrent use.
type Client struct {
	mu      sync.Mutex
	trusted map[types.UID]*trusted
}

// trusted is a client, and whom it trusts.
type trusted struct {
	*http.Client
	bundle []byte
}

// Forget closes what is kept for an extension that is gone.
func (c *Client) Forget(hook types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.trusted[hook]; t != nil {
		t.CloseIdleConnections()
		delete(c.trusted, hook)
	}
}

// clientFor returns the client of an extension: another one once its registration
// trusts other certificates.
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

// newClient trusts the certificates of the bundle, or the system's if there is none,
// and follows no redirect: what is asked is for the one who was registered.
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
			HTTP2: &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
