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

// classify classifies the request on a Node. The request must be about this Machine: it is Foreign if the Node is of
// another host, and Stale if it is older than the Machine. host is the accepted host data of the Machine. If a fact is
// unknown, the request is Fresh, in favor of the owner.
func classify(node *corev1.Node, machine *clusterv1.Machine, served v1alpha1.ReclaimRecord, host children.Host) lifecycle.Request {
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
	// A Node that is not older than the Machine cannot carry an older request.
	created := children.CreatedAt(machine)
	if !node.CreationTimestamp.Time.Before(created) {
		return lifecycle.FreshRequest
	}
	if requestedSinceReady(node) {
		return lifecycle.FreshRequest
	}
	if at := requestedAt(node); !at.IsZero() && at.Before(created) {
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

// sameHost compares the Node's provider ID and machine ID with the Machine's. The agent has compared the machine ID
// already, but a foreign Node of the same name has no agent. The accepted provider ID counts, and the one that the
// Machine reports now.
func sameHost(node *corev1.Node, host children.Host) bool {
	if node.Name != host.Node {
		return proves(node, host)
	}
	id, known := node.Spec.ProviderID, cmp.Or(host.ProviderID, host.Reported.ProviderID)
	return (agree(id, known) || id == host.Reported.ProviderID) && agree(node.Status.NodeInfo.MachineID, host.MachineID)
}

// proves reports whether a Node that is not the accepted Node of the Machine still is its host, by the provider ID.
// Cluster API finds Nodes by this ID.
func proves(node *corev1.Node, host children.Host) bool {
	id := node.Spec.ProviderID
	return id != "" && (id == host.ProviderID || id == host.Reported.ProviderID)
}

// agree reports whether a and b are equal, or one of them is unknown.
func agree(a, b string) bool { return a == "" || b == "" || a == b }

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
