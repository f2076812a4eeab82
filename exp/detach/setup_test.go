// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
)

// TestMachineChangesThatEnqueue: which changes of a Machine enqueue its Node.
func TestMachineChangesThatEnqueue(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Machine)
		want   bool
	}{
		"Phase":      {func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, false},
		"Node":       {func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "node-2" }, true},
		"Address":    {func(m *clusterv1.Machine) { m.Status.Addresses[0].Address = "192.0.2.2" }, true},
		"HostName":   {func(m *clusterv1.Machine) { m.Status.Addresses[1].Address = "another" }, false},
		"ProviderID": {func(m *clusterv1.Machine) { m.Spec.ProviderID = "test://2" }, true},
		"Admitted":   {func(m *clusterv1.Machine) { m.Annotations = map[string]string{v1alpha1.DepartureAnnotation: "{}"} }, true},
		"Released":   {func(m *clusterv1.Machine) { m.Annotations = map[string]string{v1alpha1.PreDrainHookAnnotation: ""} }, true},
	} {
		before := &clusterv1.Machine{Spec: clusterv1.MachineSpec{ProviderID: "test://1"}, Status: clusterv1.MachineStatus{
			NodeRef: clusterv1.MachineNodeReference{Name: "node-1"},
			Addresses: clusterv1.MachineAddresses{
				{Type: clusterv1.MachineInternalIP, Address: "192.0.2.1"}, {Type: clusterv1.MachineHostName, Address: "one"},
			},
		}}
		after := before.DeepCopy()
		tc.change(after)
		if got := detach.MachineChanges.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestNodeChangesThatEnqueue: a heartbeat enqueues nothing.
func TestNodeChangesThatEnqueue(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"Heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(1772438400, 0) }, false},
		"NotReady":  {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"Cordoned":  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"Label":     {func(n *corev1.Node) { n.Labels = map[string]string{"app": "x"} }, false},
		"OfControlPlane": {func(n *corev1.Node) {
			n.Labels = map[string]string{clusterv1.NodeRoleLabelPrefix + "/control-plane": ""}
		}, true},
	} {
		before := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		after := before.DeepCopy()
		tc.change(after)
		if got := detach.NodeChanges.Update(event.UpdateEvent{ObjectOld: client.Object(before), ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
