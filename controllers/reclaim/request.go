// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// judge says whether a Node asks for its owner, and whether it asks about this
// Machine, which a Node of another host and a request that is older than the
// Machine do not. Where that cannot be told, the owner wins.
func judge(node *corev1.Node, machine *clusterv1.Machine, served v1alpha1.ReclaimRecord) lifecycle.Request {
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
	if !sameHost(node, machine) {
		return lifecycle.ForeignRequest
	}
	// A Node that is no older than the Machine cannot carry an older request.
	if !node.CreationTimestamp.Before(&machine.CreationTimestamp) {
		return lifecycle.FreshRequest
	}
	if at := askedAt(node); !at.IsZero() && at.Before(machine.CreationTimestamp.Time) {
		return lifecycle.StaleRequest
	}
	return lifecycle.FreshRequest
}

// sameHost compares what the Node says of its host with what Cluster API holds of
// the Machine's. The agent has compared already; whoever takes the name of a Node
// has no agent.
func sameHost(node *corev1.Node, machine *clusterv1.Machine) bool {
	known := ""
	if info := machine.Status.NodeInfo; info != nil {
		known = info.MachineID
	}
	return agree(node.Spec.ProviderID, machine.Spec.ProviderID) && agree(node.Status.NodeInfo.MachineID, known)
}

// agree reports whether two values are the same, as far as both are known.
func agree(a, b string) bool { return a == "" || b == "" || a == b }

// askedAt is when the request was written: by the API server's clock where that
// is known, else by the Node's. Zero is unknown.
func askedAt(node *corev1.Node) time.Time {
	for _, f := range node.ManagedFields {
		if f.Time != nil && ownsRequest(f) {
			return f.Time.Time
		}
	}
	at, err := time.Parse(time.RFC3339, node.Annotations[reclaimapi.RequestedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// ownsRequest reports whether these are the fields of whoever wrote the request.
func ownsRequest(f metav1.ManagedFieldsEntry) bool {
	return f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:`+reclaimapi.RequestedAnnotation+`"`))
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

// TrimNode drops what no controller reads, which is most of a Node: this package
// reads annotations and who wrote them, package nodetaints the taints and whether
// the Node is ready. It is a transform of the per-cluster caches: hundreds of
// clusters times hundreds of Nodes live in them.
func TrimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: node.ObjectMeta}
	trimmed.ManagedFields = nil
	for _, f := range node.ManagedFields {
		if ownsRequest(f) {
			trimmed.ManagedFields = append(trimmed.ManagedFields, f)
		}
	}
	trimmed.Spec.ProviderID, trimmed.Spec.Taints = node.Spec.ProviderID, node.Spec.Taints
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	trimmed.Status.NodeInfo.MachineID = node.Status.NodeInfo.MachineID
	return trimmed, nil
}
