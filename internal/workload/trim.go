// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TrimNode drops the fields of a Node that no controller reads, which is most of it. It is a transform of the
// per-cluster caches, which hold hundreds of Nodes for each of hundreds of clusters. It keeps the metadata, the
// taints, the cordon, the Ready condition, the conditions for a Node that leaves, the machine ID, the provider
// ID and the addresses. Of managedFields it keeps the entries that WroteRequest and Cordoned report.
func TrimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: node.ObjectMeta}
	trimmed.ManagedFields = nil
	for _, f := range node.ManagedFields {
		if WroteRequest(f) || Cordoned(f) {
			trimmed.ManagedFields = append(trimmed.ManagedFields, f)
		}
	}
	trimmed.Spec.ProviderID, trimmed.Spec.Taints = node.Spec.ProviderID, node.Spec.Taints
	trimmed.Spec.Unschedulable, trimmed.Status.Addresses = node.Spec.Unschedulable, node.Status.Addresses
	for _, c := range node.Status.Conditions {
		switch string(c.Type) {
		case string(corev1.NodeReady):
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		case v1alpha1.MaintenancePlannedCondition, v1alpha1.DrainInProgressCondition, v1alpha1.DrainedCondition:
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	trimmed.Status.NodeInfo.MachineID = node.Status.NodeInfo.MachineID
	return trimmed, nil
}

// WroteRequest reports whether these are the fields of the writer of an owner's request on a Node.
func WroteRequest(f metav1.ManagedFieldsEntry) bool {
	return f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:`+reclaim.RequestedAnnotation+`"`))
}

// Cordoned reports whether these are the fields of our cordon of a Node. The API server records the latest
// writer of a field.
func Cordoned(f metav1.ManagedFieldsEntry) bool {
	return f.Manager == v1alpha1.FieldManager && f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:unschedulable"`))
}
