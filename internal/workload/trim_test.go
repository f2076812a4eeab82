// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// wrote returns a managedFields entry for an annotation.
func wrote(manager, annotation string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + annotation + `":{}}}}`),
	}
}

// TestWhatIsReadOfANodeIsKept checks the fields that the transform keeps. A dropped taint would be removed by
// the next write of the list. Without its IDs the host could not be verified, and a request would have no time.
func TestWhatIsReadOfANodeIsKept(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{
		Name: "n1", UID: "u1", ResourceVersion: "7", Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"5spot.finos.org/reclaim-requested": "true"}, Finalizers: []string{"test/keep"},
	}
	asks, other := wrote("reclaim-agent", "5spot.finos.org/reclaim-requested"), wrote("kubelet", "volumes.kubernetes.io/x")
	taints := []corev1.Taint{{Key: "example.com/dedicated", Effect: corev1.TaintEffectNoSchedule}}
	cordon := metav1.ManagedFieldsEntry{Manager: v1alpha1.FieldManager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)}
	theirs := metav1.ManagedFieldsEntry{Manager: "kubectl-cordon", FieldsV1: cordon.FieldsV1}
	spec, addresses := corev1.NodeSpec{ProviderID: "lab://n1", Taints: taints, Unschedulable: true}, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	node := &corev1.Node{ObjectMeta: meta, Spec: spec}
	node.Spec.PodCIDR, node.Status.Addresses = "10.0.0.0/24", addresses
	node.ManagedFields = []metav1.ManagedFieldsEntry{other, asks, cordon, theirs, {Manager: "empty"}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "m1", KernelVersion: "6"}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
		{Type: "Drained", Status: corev1.ConditionTrue, Reason: "R", Message: "m", LastTransitionTime: metav1.Now()},
		{Type: "MaintenanceInProgress", Status: corev1.ConditionTrue},
	}
	before := node.DeepCopy()

	want := &corev1.Node{ObjectMeta: meta, Spec: spec}
	want.ManagedFields, want.Status.Addresses = []metav1.ManagedFieldsEntry{asks, cordon}, addresses
	want.Status.NodeInfo.MachineID = "m1"
	want.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: "Drained", Status: corev1.ConditionTrue, Reason: "R", Message: "m"},
	}

	got, err := workload.TrimNode(node)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v; -want, +got:\n%s", err, diff)
	}
	if diff := cmp.Diff(before, node); diff != "" {
		t.Errorf("what was given is changed: -before, +after:\n%s", diff)
	}
	pod := &corev1.Pod{ObjectMeta: meta}
	if got, err := workload.TrimNode(pod); err != nil || got != any(pod) {
		t.Errorf("another object is left as it is, not %v, %v", got, err)
	}
}
