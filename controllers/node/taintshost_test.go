// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

var ownTaint = v1alpha1.NodeTaint{Key: "example.com/lent", Effect: corev1.TaintEffectNoSchedule}

func (w *taintWorld) names(m *clusterv1.Machine, node string) {
	w.Helper()
	w.Read(m)
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: node}
	w.Must(w.Client.Status().Update(w.Context(), m))
}

// TestTaintsStayOnTheNodeThatIsBelieved covers a Machine that names another Node than the accepted one.
func TestTaintsStayOnTheNodeThatIsBelieved(t *testing.T) {
	w := newTaintWorld(t, ownTaint).withNode(true)
	w.sm.Status.NodeRef = &v1alpha1.NodeReference{Name: w.node.Name}
	w.sm.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: "box-machine", UID: w.machine().UID}
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.settle()
	believed := w.node
	w.withNode(true)
	w.settle()
	if w.Read(w.node); len(w.node.Spec.Taints) != 0 {
		t.Errorf("the Node of another is tainted: %v", w.node.Spec.Taints)
	}
	w.editTaints()
	w.settle()
	if w.Read(believed); len(believed.Spec.Taints) != 0 {
		t.Errorf("the Node that is believed is not looked at: %v", believed.Spec.Taints)
	}
}

// TestASharedNodeIsNotTainted covers a Node that two Machines name. The status does not change until the other Machine
// is gone.
func TestASharedNodeIsNotTainted(t *testing.T) {
	w := newTaintWorld(t, ownTaint).withNode(true)
	m := w.machine()
	rival := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "rival"}, Spec: m.Spec}
	w.Create(rival)
	w.names(rival, w.node.Name)
	w.Writes = nil
	w.settle()
	if len(w.Writes) != 0 {
		t.Errorf("the Node is rejected, and must not be written: %q", w.Writes)
	}
	w.Must(w.Client.Delete(t.Context(), rival))
	w.settle()
	if w.Must(w.Client.Get(t.Context(), client.ObjectKeyFromObject(w.node), w.node)); len(w.node.Spec.Taints) != 1 {
		t.Errorf("the other is gone: %v", w.node.Spec.Taints)
	}
}
