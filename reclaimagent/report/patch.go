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

// operation is one operation of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// annotations returns the annotations of a request.
func annotations(reason string, at time.Time) map[string]string {
	return map[string]string{
		reclaim.RequestedAnnotation:   reclaim.RequestedValue,
		reclaim.ReasonAnnotation:      reason,
		reclaim.RequestedAtAnnotation: at.UTC().Format(time.RFC3339),
	}
}

// patchWithoutRead returns the patch for a Node that was not read. The patch also tests the machine ID, so that the
// check and the write are atomic. It fails if the Node has no annotations.
func (r *Reporter) patchWithoutRead(reason string, at time.Time) []operation {
	var ops []operation
	if r.o.MachineID != "" {
		ops = append(ops, operation{"test", "/status/nodeInfo/machineID", r.o.MachineID})
	}
	return append(ops, addEach(reason, at)...)
}

// patchFor returns the patch for the Node as read. It fails if the Node has changed since, so that no other annotation
// is lost.
func patchFor(n *node, reason string, at time.Time) []operation {
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

// Report writes the three annotations, normally in one request. It returns [ErrHostIdentity] and writes nothing if the
// Node describes another machine. Other errors may be temporary; [Reporter.Deliver] retries. If it reads the Node and
// finds a request, it keeps that one.
func (r *Reporter) Report(ctx context.Context, reason string, at time.Time) error {
	if r.mergeOnly {
		return r.merge(ctx, reason, at)
	}
	err := r.patch(ctx, kubeapi.JSONPatch, r.patchWithoutRead(reason, at))
	switch kubeapi.Code(err) {
	case http.StatusUnsupportedMediaType:
		// Cluster API's in-memory workload cluster, for one.
		r.mergeOnly = true
		return r.merge(ctx, reason, at)
	case http.StatusUnprocessableEntity, http.StatusConflict:
		// The Node is another machine, or has no annotations: read it.
		return r.readThenWrite(ctx, func(n *node) error {
			return r.patch(ctx, kubeapi.JSONPatch, patchFor(n, reason, at))
		})
	default:
		return err
	}
}

// merge is for servers without JSON Patch. The patch has the UID and resource version of the Node as read. A server
// that does not compare them may lose a concurrent write.
func (r *Reporter) merge(ctx context.Context, reason string, at time.Time) error {
	return r.readThenWrite(ctx, func(n *node) error {
		return r.patch(ctx, kubeapi.MergePatch, map[string]any{"metadata": map[string]any{
			"uid":             n.Metadata.UID,
			"resourceVersion": n.Metadata.ResourceVersion,
			"annotations":     annotations(reason, at),
		}})
	})
}

// readThenWrite reads the Node, and calls write unless the Node is another machine or has a request.
func (r *Reporter) readThenWrite(ctx context.Context, write func(n *node) error) error {
	n, err := r.getIdentified(ctx)
	if err != nil || n.requested() {
		return err
	}
	return write(n)
}

// annotate writes one annotation, or removes it if value is nil. A merge patch of one key leaves other annotations
// unchanged, and works on every server. The UID prevents a write to a Node that was created since.
func (r *Reporter) annotate(ctx context.Context, n *node, key string, value *string) error {
	return r.patch(ctx, kubeapi.MergePatch, map[string]any{"metadata": map[string]any{
		"uid": n.Metadata.UID, "annotations": map[string]*string{key: value},
	}})
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
