// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrRefused is the error of a request that the transport did not send. A write that gets
// this far did not come from an Actuator, or from one that is broken.
var ErrRefused = errors.New("refused, because the manager carries nothing out")

// allowed are the requests that carry nothing out: a manager's lease, what it tells people,
// and the questions of its metrics endpoint about whoever asks for them.
var allowed = regexp.MustCompile(`^(/.*)?(` +
	`/apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases(/[^/]+)?|` +
	`/apis/events\.k8s\.io/v1/namespaces/[^/]+/events(/[^/]+)?|` +
	`/api/v1/namespaces/[^/]+/events(/[^/]+)?|` +
	`/apis/authentication\.k8s\.io/v1/tokenreviews|` +
	`/apis/authorization\.k8s\.io/v1/subjectaccessreviews)$`)

// statuses are those of ScheduledMachines.
var statuses = regexp.MustCompile(`^(/.*)?/apis/5spot\.finos\.org/v1alpha1/namespaces/[^/]+/scheduledmachines/[^/]+/status$`)

// Transport returns a transport that, where the Gate suppresses, refuses every request that
// changes something, whoever sends it. Every client of the manager is made with it. A
// request that asks for server-side dry run changes something, too: webhooks see it.
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
	if t.gate.showsStatus() && statuses.MatchString(req.URL.Path) {
		if same, ok := withoutPhase(req); ok {
			return t.next.RoundTrip(same)
		}
	}
	if req.Body != nil {
		_ = req.Body.Close() // As every transport has to.
	}
	err := fmt.Errorf("%w: %s %s", ErrRefused, req.Method, req.URL.Path)
	ctrl.LoggerFrom(req.Context()).Error(err, "Refused a request that no actuator should have sent")
	return nil, err
}

// withoutPhase returns the request again, if it is a merge patch that leaves the phase
// alone.
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

// Remote returns an Actuator behind the same Gate that writes to a workload cluster. The
// error of one that is not connected is clustercache.ErrClusterNotConnected.
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
	remote := Behind(a.gate, c)
	remote.remote = true
	return remote, nil
}

// guard returns a client like c whose requests go through the Transport. The cluster cache
// makes its clients without asking anybody for one. Connections are shared.
func (g *Gate) guard(ctx context.Context, c client.Client, cache clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	config, err := cache.GetRESTConfig(ctx, cluster)
	if err != nil || config == nil { // A cache of tests connects nowhere.
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
