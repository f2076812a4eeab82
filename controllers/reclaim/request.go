// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"cmp"
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

// judge says whether a Node asks for its owner, and whether it asks about this
// Machine, which a Node of another host and a request that is older than the
// Machine do not. host is what is known of the Machine's. Where something cannot be told,
// the owner wins.
func judge(node *corev1.Node, machine *clusterv1.Machine, served v1alpha1.ReclaimRecord, host children.Host) lifecycle.Request {
	if node == nil || !reclaimapi.Requested(node.Annotations) {
		return lifecycle.NoRequest
	}
	asked := recordOf(node)
	if asked.Same(served) {
		return lifecycle.ServedRequest
	}
	if machine == nil {
		return lifecycle.FreshRequest
	}
	if !sameHost(node, host) {
		return lifecycle.ForeignRequest
	}
	// A Node that is no older than the Machine cannot carry an older request.
	created := children.CreatedAt(machine)
	if !node.CreationTimestamp.Time.Before(created) {
		return lifecycle.FreshRequest
	}
	if requestedSinceReady(node) {
		return lifecycle.FreshRequest
	}
	if at := askedAt(node); !at.IsZero() && at.Before(created) {
		return lifecycle.StaleRequest
	}
	return lifecycle.FreshRequest
}

// requestedSinceReady reports whether the request was made after the Node last became ready. Agent
// and kubelet write both times by the clock of one host. The Machine's time is of another cluster,
// whose clock may differ by any amount. After an outage of the workload cluster, a Node still shows
// that it became ready before this Machine. Its request has been served then, which is recorded.
func requestedSinceReady(node *corev1.Node) bool {
	at, err := time.Parse(time.RFC3339, node.Annotations[reclaimapi.RequestedAtAnnotation])
	return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !at.Before(c.LastTransitionTime.Time)
	})
}

// sameHost compares what the Node says of its host with what is known of the Machine's.
// The agent has compared already; whoever takes the name of a Node has no agent. An ID of
// the provider counts that was believed, and one that the Machine has now.
func sameHost(node *corev1.Node, host children.Host) bool {
	if node.Name != host.Node {
		return proves(node, host)
	}
	id, known := node.Spec.ProviderID, cmp.Or(host.ProviderID, host.Says.ProviderID)
	return (agree(id, known) || id == host.Says.ProviderID) && agree(node.Status.NodeInfo.MachineID, host.MachineID)
}

// proves reports whether a Node that is not believed to be the Machine's is of its host all
// the same: Cluster API finds a Node by this ID.
func proves(node *corev1.Node, host children.Host) bool {
	id := node.Spec.ProviderID
	return id != "" && (id == host.ProviderID || id == host.Says.ProviderID)
}

// agree reports whether two values are the same, as far as both are known.
func agree(a, b string) bool { return a == "" || b == "" || a == b }

// askedAt is when the request was written: by the API server's clock where that
// is known, else by the Node's. Zero is unknown.
func askedAt(node *corev1.Node) time.Time {
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

// recordOf is the request in the Node's words.
func recordOf(node *corev1.Node) v1alpha1.ReclaimRecord {
	r := v1alpha1.ReclaimRecord{
		Node:        node.Name,
		NodeUID:     node.UID,
		Reason:      node.Annotations[reclaimapi.ReasonAnnotation],
		RequestedAt: node.Annotations[reclaimapi.RequestedAtAnnotation],
	}
	if _, err := time.Parse(time.RFC3339, r.RequestedAt); err != nil {
		if at := askedAt(node); !at.IsZero() {
			r.StoredAt = at.UTC().Format(time.RFC3339)
		}
	}
	return r.Screened()
}

// requestOn is what is written on a Node about a request.
func requestOn(node *corev1.Node) ingest.Request {
	a := node.Annotations
	trigger, marked := a[reclaimapi.RequestedAnnotation]
	return ingest.Request{
		Node: node.Name, Asks: reclaimapi.Requested(a), Marked: marked, Trigger: trigger,
		Reason: a[reclaimapi.ReasonAnnotation], RequestedAt: a[reclaimapi.RequestedAtAnnotation],
	}
}
