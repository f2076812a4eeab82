// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
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
	dir := cmp.Or(o.AccountDir, accountDir)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	client, err := clientTrusting(dir+"/ca.crt", config, http.ProxyFromEnvironment, o.Now)
	if err != nil {
		return nil, fmt.Errorf("reading service account: %w", err)
	}
	token := tokenFrom(dir+"/token", o.Now)
	if _, err := token(false); err != nil {
		return nil, fmt.Errorf("reading service account: %w", err)
	}
	base := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}
	return &Client{base: base, http: client, token: token}, nil
}

// maxAge is the maximum age of a token or a certificate authority that was read from a file. The kubelet renews a token
// at 80 % of its lifetime of an hour or more; client-go uses the same interval. New connections trust an authority that
// was removed from the file no longer than this.
const maxAge = time.Minute

// renewed holds what load reads from a file that is replaced while the agent runs. It is safe for concurrent use.
type renewed[T any] struct {
	now  func() time.Time
	load func() (T, error)

	mu    sync.Mutex
	value T
	// read is when value was loaded. known means that it was.
	read  time.Time
	known bool
}

// get returns the value. It loads a value that is older than maxAge again, and any value if fresh. If that fails, for
// example because the file is being replaced, it returns the last value, if any.
func (r *renewed[T]) get(fresh bool) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.known && !fresh && now.Sub(r.read) < maxAge {
		return r.value, nil
	}
	value, err := r.load()
	switch {
	case err == nil:
		r.value, r.read, r.known = value, now, true
	case !r.known:
		return value, err
	}
	return r.value, nil
}

// tokenFrom returns a source of the token in a file.
func tokenFrom(path string, now func() time.Time) func(fresh bool) (string, error) {
	r := renewed[string]{now: now, load: func() (string, error) {
		raw, err := os.ReadFile(path) //nolint:gosec // an argument of the agent, or a file of its pod
		token := strings.TrimSpace(string(raw))
		if err == nil && token == "" {
			err = fmt.Errorf("token file %s is empty", path)
		}
		return token, err
	}}
	return r.get
}
