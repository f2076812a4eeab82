// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
)

// operation is one step of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// annotations returns what a report writes.
func annotations(reason string, at time.Time) map[string]string {
	return map[string]string{
		reclaim.RequestedAnnotation:   reclaim.RequestedValue,
		reclaim.ReasonAnnotation:      reason,
		reclaim.RequestedAtAnnotation: at.UTC().Format(time.RFC3339),
	}
}

// blindly is the report for a Node that was not read: it tests the identity of
// the machine in the same request that writes, so nothing can come between. It
// fails on a Node that has no annotations at all.
func (r *Reporter) blindly(reason string, at time.Time) []operation {
	var ops []operation
	if r.o.MachineID != "" {
		ops = append(ops, operation{"test", "/status/nodeInfo/machineID", r.o.MachineID})
	}
	return append(ops, addEach(reason, at)...)
}

// knowing is the report for the Node as it was read: whatever changed since
// makes it fail, so that no other annotation can be lost.
func knowing(n *node, reason string, at time.Time) []operation {
	ops := []operation{
		{"test", "/metadata/resourceVersion", n.Metadata.ResourceVersion},
	}
	if n.Metadata.Annotations == nil {
		return append(ops, operation{"add", "/metadata/annotations", annotations(reason, at)})
	}
	return append(ops, addEach(reason, at)...)
}

func addEach(reason string, at time.Time) []operation {
	values := annotations(reason, at)
	var ops []operation
	for _, key := range []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation} {
		// "~1" stands for a slash in a JSON pointer (RFC 6901).
		ops = append(ops, operation{"add", "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1"), values[key]})
	}
	return ops
}

// Report writes the three annotations, in one request where the Node is as Nodes
// are. It returns [ErrHostIdentity], having written nothing, if the Node
// describes another machine. Any other error may pass; [Reporter.Deliver]
// repeats. A request that stands already is left as it is if it is seen.
func (r *Reporter) Report(ctx context.Context, reason string, at time.Time) error {
	if r.mergeOnly {
		return r.merge(ctx, reason, at)
	}
	err := r.patch(ctx, kubeapi.JSONPatch, r.blindly(reason, at))
	switch kubeapi.Code(err) {
	case http.StatusUnsupportedMediaType:
		// Cluster API's in-memory workload cluster, for one.
		r.mergeOnly = true
		return r.merge(ctx, reason, at)
	case http.StatusUnprocessableEntity, http.StatusConflict:
		// Another machine, or no annotations yet: the Node says which.
		return r.look(ctx, func(n *node) error {
			return r.patch(ctx, kubeapi.JSONPatch, knowing(n, reason, at))
		})
	default:
		return err
	}
}

// merge is for servers without JSON Patch. The identity and the version of the
// object guard what was read; a server that does not compare them may lose a race.
func (r *Reporter) merge(ctx context.Context, reason string, at time.Time) error {
	return r.look(ctx, func(n *node) error {
		return r.patch(ctx, kubeapi.MergePatch, map[string]any{"metadata": map[string]any{
			"uid":             n.Metadata.UID,
			"resourceVersion": n.Metadata.ResourceVersion,
			"annotations":     annotations(reason, at),
		}})
	})
}

// look reads the Node and writes unless it is another machine's or has a request.
func (r *Reporter) look(ctx context.Context, write func(n *node) error) error {
	n, err := r.get(ctx, "")
	if err != nil {
		return err
	}
	if err := r.identify(n); err != nil || n.requested() {
		return err
	}
	return write(n)
}

func (r *Reporter) patch(ctx context.Context, contentType string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = r.o.Client.Do(ctx, kubeapi.Request{
		Method: http.MethodPatch, Path: r.path(), ContentType: contentType, Body: raw,
		Accept: kubeapi.MetadataOnly,
		Query:  url.Values{"fieldManager": {reclaim.FieldManager}},
	}, nil)
	if err != nil {
		return fmt.Errorf("patching Node %s: %w", r.o.Node, err)
	}
	return nil
}
