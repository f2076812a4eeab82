// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
)

// TestNodeUpdatesThatEnqueue covers changes of a Node. The kubelet writes the Node every few seconds. Only these
// changes show that the agent or the Node has changed.
func TestNodeUpdatesThatEnqueue(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*corev1.Node)
		want   bool
	}{
		"Nothing":   {"The cache delivers it again.", func(*corev1.Node) {}, false},
		"Heartbeat": {"The kubelet lives.", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"Label":     {"This package does not read it.", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false},
		"Agent":     {"The agent looks for something else.", func(n *corev1.Node) { n.Annotations[reclaimapi.StateAnnotation] = "{}" }, true},
		"Asks":      {"The owner was heard: the agent keeps quiet.", func(n *corev1.Node) { n.Annotations[reclaimapi.RequestedAnnotation] = "true" }, true},
		"Leaves":    {"The agent goes with it.", func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) }, true},
		"NotReady":  {"It is unknown whether the agent runs.", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"MachineID": {"The host is another, or was installed anew.", func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "b" }, true},
		"Provider":  {"A request is refused.", func(n *corev1.Node) { n.Spec.ProviderID = "lab:///b" }, true},
		"Taints":    {"A taint of ours may be gone.", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{theirs} }, true},
		"Record":    {"It says which taints are ours.", func(n *corev1.Node) { n.Annotations[v1alpha1.NodeAppliedTaintsAnnotation] = "" }, true},
		"Condition": {"A condition of ours may be gone.", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Drained", Status: corev1.ConditionTrue})
		}, true},
		"Another": {"One of the same name is another host.", func(n *corev1.Node) { n.UID = "2" }, true},
	} {
		before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1", Annotations: map[string]string{}}}
		before.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		after := before.DeepCopy()
		tc.change(after)
		if got := node.NodeChanges.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v: %s", name, got, tc.reason)
		}
	}
}
