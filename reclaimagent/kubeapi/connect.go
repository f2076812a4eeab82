// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/tls"
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

// Paths of a pod's service account, and the variables with the address of the API server. See "Accessing the Kubernetes
// API from a Pod".
const (
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	hostEnv    = "KUBERNETES_SERVICE_HOST"
	portEnv    = "KUBERNETES_SERVICE_PORT"
)

// ErrNotInCluster means that the process does not run in a pod.
var ErrNotInCluster = errors.New("not in a pod, and no kubeconfig given")

// tokenAge is the maximum age of a token that was read from a file. The kubelet renews it at 80 % of its lifetime of an
// hour or more. client-go uses the same interval.
const tokenAge = time.Minute

// Options are the dependencies of a Client.
type Options struct {
	// Now is the clock. It is required.
	Now func() time.Time
	// Getenv reads the environment. It is required by [InCluster].
	Getenv func(string) string
	// AccountDir is the directory of the service account. "" means the default of pods.
	AccountDir string
}

// InCluster returns a client with the service account of the pod. Outside a pod the error wraps [ErrNotInCluster].
func InCluster(o Options) (*Client, error) {
	host, port := o.Getenv(hostEnv), o.Getenv(portEnv)
	if host == "" || port == "" {
		return nil, fmt.Errorf("%w: %s and %s are not set", ErrNotInCluster, hostEnv, portEnv)
	}
	dir := o.AccountDir
	if dir == "" {
		dir = accountDir
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	trust, err := newTrust(dir+"/ca.crt", config, http.ProxyFromEnvironment, o.Now)
	if err != nil {
		return nil, fmt.Errorf("reading service account: %w", err)
	}
	token := &fileToken{path: dir + "/token", now: o.Now}
	if _, err := token.Token(false); err != nil {
		return nil, fmt.Errorf("reading service account: %w", err)
	}
	base := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}
	return &Client{base: base, trust: trust, token: token}, nil
}

// fixedToken is a token that never changes.
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

// Token implements TokenSource. If the file cannot be read, it returns the last token, if any.
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
