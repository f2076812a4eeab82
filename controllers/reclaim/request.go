// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// classify classifies the request on a Node. The request must be about this Machine: it is Foreign if the Node is of
// another host, and Stale if it is older than the Machine. host is the accepted host data of the Machine. If a fact is
// unknown, the request is Fresh, in favor of the owner.
func classify(node *corev1.Node, machine *clusterv1.Machine, served v1alpha1.ReclaimRecord, host children.Host) lifecycle.Request {
	if node == nil || !reclaimapi.Requested(node.Annotations) {
		return lifecycle.NoRequest
	}
	switch {
	case recordOf(node).Same(served):
		return lifecycle.ServedRequest
	case machine == nil:
		return lifecycle.FreshRequest
	case !host.Is(node):
		return lifecycle.ForeignRequest
	}
	created, at := children.CreatedAt(machine), requestedAt(node)
	// A Node that is not older than the Machine cannot carry an older request.
	if node.CreationTimestamp.Time.Before(created) && !requestedSinceReady(node) && !at.IsZero() && at.Before(created) {
		return lifecycle.StaleRequest
	}
	return lifecycle.FreshRequest
}

// requestedSinceReady reports whether the request was made after the Node last became ready. The agent and the kubelet
// write both times by the clock of one host. The Machine's time is from another cluster, whose clock may differ. After
// an outage of the workload cluster, the ready time may be older than this Machine. An old request has then been
// served, and the record shows it.
func requestedSinceReady(node *corev1.Node) bool {
	at, err := time.Parse(time.RFC3339, node.Annotations[reclaimapi.RequestedAtAnnotation])
	return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !at.Before(c.LastTransitionTime.Time)
	})
}

// requestedAt returns when the request was written: by the API server's clock if known, else by the Node's. Zero means
// unknown.
func requestedAt(node *corev1.Node) time.Time {
	for _, f := range node.ManagedFields {
		if f.Time != nil && workload.WroteRequest(f) {
			return f.Time.Time
		}
	}
	at, err := time.Parse(time.RFC3339, node.Annotations[reclaimapi.RequestedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// recordOf returns the record of the request on a Node.
func recordOf(node *corev1.Node) v1alpha1.ReclaimRecord {
	r := v1alpha1.ReclaimRecord{
		Node:        node.Name,
		NodeUID:     node.UID,
		Reason:      node.Annotations[reclaimapi.ReasonAnnotation],
		RequestedAt: node.Annotations[reclaimapi.RequestedAtAnnotation],
	}
	if _, err := time.Parse(time.RFC3339, r.RequestedAt); err != nil {
		if at := requestedAt(node); !at.IsZero() {
			r.StoredAt = at.UTC().Format(time.RFC3339)
		}
	}
	return r.Screened()
}

// requestOn returns the request annotations of a Node.
func requestOn(node *corev1.Node) ingest.Request {
	a := node.Annotations
	trigger, marked := a[reclaimapi.RequestedAnnotation]
	hold, held := a[reclaimapi.HoldAnnotation]
	_, readable := reclaimapi.ParseHoldState(hold)
	return ingest.Request{
		Node: node.Name, Requested: reclaimapi.Requested(a), Marked: marked, Trigger: trigger,
		Reason: a[reclaimapi.ReasonAnnotation], RequestedAt: a[reclaimapi.RequestedAtAnnotation],
		Hold: hold, HoldUnreadable: held && !readable,
	}
}
