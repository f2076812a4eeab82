// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// judge says whether a Node asks for its owner, and whether it asks about this
// Machine, which a Node of another host and a request that is older than the
// Machine do not. machineID is what the Node said of its host first, empty if that is
// not known. Where something cannot be told, the owner wins.
func judge(node *corev1.Node, machine *clusterv1.Machine, served v1alpha1.ReclaimRecord, machineID string) lifecycle.Request {
	if node == nil || !reclaimapi.Requested(node.Annotations) {
		return lifecycle.NoRequest
	}
	asked := recordOf(node)
	if served.Node == asked.Node && served.NodeUID == asked.NodeUID && served.RequestedAt == asked.RequestedAt {
		return lifecycle.ServedRequest
	}
	if machine == nil {
		return lifecycle.FreshRequest
	}
	if !sameHost(node, machine, machineID) {
		return lifecycle.ForeignRequest
	}
	// A Node that is no older than the Machine cannot carry an older request.
	created := children.CreatedAt(machine)
	if !node.CreationTimestamp.Time.Before(created) {
		return lifecycle.FreshRequest
	}
	if at := askedAt(node); !at.IsZero() && at.Before(created) {
		return lifecycle.StaleRequest
	}
	return lifecycle.FreshRequest
}

// sameHost compares what the Node says of its host with what is known of the Machine's.
// The agent has compared already; whoever takes the name of a Node has no agent. What
// Cluster API holds of the host does not count: it follows the Node.
func sameHost(node *corev1.Node, machine *clusterv1.Machine, machineID string) bool {
	return agree(node.Spec.ProviderID, machine.Spec.ProviderID) && agree(node.Status.NodeInfo.MachineID, machineID)
}

// machineID is what the Node of this very Machine said first, as the status has it.
func (s *scope) machineID() string {
	m, st := s.children.Machine, s.scheduled.Status
	if m == nil || st.NodeRef == nil || st.NodeRef.Name != m.Status.NodeRef.Name || st.LastScheduledTime == nil ||
		!st.LastScheduledTime.Time.Equal(children.CreatedAt(m).Truncate(time.Second)) {
		return ""
	}
	return st.NodeRef.MachineID
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
	return v1alpha1.ReclaimRecord{
		Node:        node.Name,
		NodeUID:     node.UID,
		Reason:      node.Annotations[reclaimapi.ReasonAnnotation],
		RequestedAt: node.Annotations[reclaimapi.RequestedAtAnnotation],
	}.Screened()
}
