// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// allowed matches requests that are sent although writes are suppressed: leader election leases, Events, and
// the authentication and authorization reviews of the metrics endpoint.
var allowed = regexp.MustCompile(`^(/.*)?(` +
	`/apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases(/[^/]+)?|` +
	`/apis/events\.k8s\.io/v1/namespaces/[^/]+/events(/[^/]+)?|` +
	`/api/v1/namespaces/[^/]+/events(/[^/]+)?|` +
	`/apis/authentication\.k8s\.io/v1/tokenreviews|` +
	`/apis/authorization\.k8s\.io/v1/subjectaccessreviews)$`)

// statuses matches the status of ScheduledMachines.
var statuses = regexp.MustCompile(`^(/.*)?/apis/5spot\.finos\.org/v1alpha1/namespaces/[^/]+/scheduledmachines/[^/]+/status$`)

// Transport returns a transport that sends no write while the Gate suppresses writes: the error is Suppressed. Every
// client of the manager uses it. A server-side dry-run request counts as a write, because it calls webhooks.
func (g *Gate) Transport(next http.RoundTripper) http.RoundTripper {
	if !g.Suppresses() {
		return next
	}
	return &transport{next, g}
}

type transport struct {
	next http.RoundTripper
	gate *Gate
}

// WrappedRoundTripper lets client-go close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(req)
	}
	if allowed.MatchString(req.URL.Path) {
		return t.next.RoundTrip(req)
	}
	if !t.gate.DryRun && statuses.MatchString(req.URL.Path) {
		if same, ok := withoutPhase(req); ok {
			return t.next.RoundTrip(same)
		}
	}
	if req.Body != nil {
		_ = req.Body.Close() // http.RoundTripper requires it.
	}
	return nil, t.gate.refusal()
}

// withoutPhase returns a copy of the request if it is a merge patch that does not change the phase.
func withoutPhase(req *http.Request) (*http.Request, bool) {
	if req.Method != http.MethodPatch || req.Header.Get("Content-Type") != string(types.MergePatchType) || req.Body == nil {
		return nil, false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil || movesPhase(body) {
		return nil, false
	}
	_ = req.Body.Close()
	same := req.Clone(req.Context())
	same.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	same.Body, err = same.GetBody()
	return same, err == nil
}

// movesPhase reports whether a merge patch may change status.phase. It returns true for a patch that cannot be
// parsed.
func movesPhase(patch []byte) bool {
	var body struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(patch, &body); err != nil {
		return true
	}
	_, moves := body.Status["phase"]
	return moves
}

// Remote returns an Actuator with the same Gate that writes to a workload cluster. The error for a cluster that
// is not connected is clustercache.ErrClusterNotConnected.
func (a *Actuator) Remote(ctx context.Context, cache clustercache.ClusterCache, cluster client.ObjectKey) (*Actuator, error) {
	c, err := cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if a.gate.Suppresses() {
		if c, err = a.gate.guard(ctx, c, cache, cluster); err != nil {
			return nil, err
		}
	}
	remote := NewGated(a.gate, c)
	remote.remote = true
	return remote, nil
}

// guard returns a client like c whose requests go through Transport. The cluster cache creates its clients
// without a hook for that. Connections are shared.
func (g *Gate) guard(ctx context.Context, c client.Client, cache clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	config, err := cache.GetRESTConfig(ctx, cluster)
	if err != nil || config == nil { // The cache of a test has no config.
		return c, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(g.Transport)
	guarded, err := client.New(config, client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("guarding client of Cluster %s: %w", cluster, err)
	}
	return guarded, nil
}
