// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// rival creates another Machine of the Cluster that names the same Node.
func (w *world) rival() *clusterv1.Machine {
	w.Helper()
	m := w.machine()
	r := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "rival"}, Spec: m.Spec}
	w.Create(r)
	r.Status.NodeRef = m.Status.NodeRef
	w.Must(w.Client.Status().Update(w.Context(), r))
	return r
}

// names makes the Machine name another Node, or none.
func (w *world) names(node string) {
	w.Helper()
	m := w.machine()
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: node}
	w.Must(w.Client.Status().Update(w.Context(), m))
}

// TestAMachineWhoseNodeIsNotBelievedIsNotProtected covers two Machines that name one Node. No agent runs there for the
// machine until the other Machine is gone.
func TestAMachineWhoseNodeIsNotBelievedIsNotProtected(t *testing.T) {
	w := joined(t)
	rival := w.rival()
	w.runAgent("java")
	w.want("", "", "")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.want(metav1.ConditionUnknown, "NodeRejected", "which Machine rival has, too: find out whose it is, and delete the other", written...)
	w.want(metav1.ConditionUnknown, "NodeRejected", "")
	w.wantEvents()
	w.Must(w.Client.Delete(t.Context(), rival))
	w.want(metav1.ConditionTrue, "Watching", "", written...)
}

// TestARejectionEndsWhenNoNodeIsNamed covers a Machine that does not name a Node any more.
func TestARejectionEndsWhenNoNodeIsNamed(t *testing.T) {
	w := joined(t)
	w.rival()
	w.want("", "", "")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.want(metav1.ConditionUnknown, "NodeRejected", "", written...)
	w.names("")
	w.want(metav1.ConditionUnknown, "NodeRejected", "")
	w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	w.want("", "", "", written...)
}

// TestTheNodeThatIsBelievedIsLookedAt covers a Machine that names another Node than the accepted one.
func TestTheNodeThatIsBelievedIsLookedAt(t *testing.T) {
	w := protected(t)
	w.sm.Status.NodeRef = &v1alpha1.NodeReference{Name: w.node.Name}
	w.sm.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: "box-machine", UID: w.machine().UID}
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.names("elsewhere")
	w.want(metav1.ConditionTrue, "Watching", "Node "+w.node.Name)
	w.setReady(false)
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "AgentNotRunning", "Node "+w.node.Name, written...)
}
