// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestRejectedReportsAreAnnouncedOnce checks that rejected host data causes one Event and no other change.
func TestRejectedReportsAreAnnouncedOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.running()
	m, _ := w.machine()
	w.Edit(m, func() { m.Spec.ProviderID = "lab://box" })
	w.settle()
	w.countEvents(v1alpha1.RecordRejectedEvent)
	w.nodeRef(m, "elsewhere")
	w.Edit(m, func() { m.Spec.ProviderID = "lab://else" })
	w.settle()
	if n := w.countEvents(v1alpha1.RecordRejectedEvent); n != 2 {
		t.Errorf("%d Events, want two: a Node and an ID", n)
	}
	if st := w.sm.Status; st.NodeRef.Name != "box-node" || st.ProviderID != "lab://box" {
		t.Errorf("the accepted data does not stay: %+v, %s", st.NodeRef, st.ProviderID)
	}
	w.want(v1alpha1.PhaseActive, v1alpha1.ReadyCondition, metav1.ConditionTrue, v1alpha1.MachineRunningReason)
	said := conditions.GetMessage(w.sm, v1alpha1.MachineReadyCondition)
	for _, words := range []string{`Rejected: Machine box-machine: status.nodeRef is "elsewhere", and "box-node" counts`, `spec.providerID is "lab://else"`} {
		if !strings.Contains(said, words) {
			t.Errorf("%q does not say %q", said, words)
		}
	}
	w.Writes = nil
	w.settle()
	w.settle()
	if n := w.countEvents(v1alpha1.RecordRejectedEvent); n != 0 || len(w.Writes) != 0 {
		t.Errorf("%d more Events; writes %q", n, w.Writes)
	}
	w.Edit(m, func() { m.Spec.ProviderID = "lab://box" })
	w.nodeRef(m, "box-node")
	w.settle()
	if said := conditions.GetMessage(w.sm, v1alpha1.MachineReadyCondition); strings.Contains(said, "believed") {
		t.Errorf("it was put back: %q", said)
	}
}

// TestASharedNodeIsAcceptedForNoNewMachine covers a Node that a Machine of another controller has already.
func TestASharedNodeIsAcceptedForNoNewMachine(t *testing.T) {
	w := newWorld(t, nil)
	rival := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.sm.Namespace, Name: "rival"}}
	rival.Spec.ClusterName = "lab"
	rival.Spec.Bootstrap.DataSecretName = new("none")
	rival.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AnyMachine", Name: "rival"}
	w.Create(rival)
	w.nodeRef(rival, "box-node")
	w.clock.SetTime(monday.Add(3600e9))
	w.settle()
	m, _ := w.machine()
	w.report(m, clusterv1.ReadyCondition, metav1.ConditionTrue, "Ready", "")
	w.settle()
	if w.sm.Status.NodeRef != nil {
		t.Fatalf("it is another's: %+v", w.sm.Status.NodeRef)
	}
	if said := conditions.GetMessage(w.sm, v1alpha1.MachineReadyCondition); !strings.Contains(said, `which Machine rival has, too`) {
		t.Errorf("it is not reported: %q", said)
	}
	if m, ok := w.machine(); !ok || !m.DeletionTimestamp.IsZero() {
		t.Error("a machine is removed because its report is rejected")
	}
	w.sm.Spec.KillIfCommands = []string{"java"}
	w.Must(w.Client.Update(t.Context(), w.sm))
	conditions.Set(w.sm, metav1.Condition{Type: v1alpha1.OwnerProtectedCondition, Status: metav1.ConditionUnknown, Reason: v1alpha1.NodeRejectedReason})
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.settle()
	if !conditions.Has(w.sm, v1alpha1.OwnerProtectedCondition) {
		t.Error("it is not said that its owner may not be heard")
	}
	w.Must(w.Client.Delete(t.Context(), rival))
	w.settle()
	if w.sm.Status.NodeRef == nil || w.sm.Status.NodeRef.Name != "box-node" {
		t.Errorf("the other is gone: %+v", w.sm.Status.NodeRef)
	}
}
