// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// reports sets the machine ID that the Node reports.
func (w *world) reports(machineID string) {
	w.Helper()
	w.Read(w.node)
	w.node.Status.NodeInfo.MachineID = machineID
	w.Must(w.Client.Status().Update(w.Context(), w.node))
}

// TestAHostThatChangedIsNotProtected covers a Node that reports another machine ID while the machine is lent. Package
// reclaim refuses requests of this Node.
func TestAHostThatChangedIsNotProtected(t *testing.T) {
	w := joined(t)
	w.reports("aa")
	w.sm.Status.NodeRef = &v1alpha1.NodeReference{Name: w.node.Name, MachineID: "aa"}
	w.sm.Status.MachineRef = &v1alpha1.ChildReference{APIVersion: "v1", Kind: "Machine", Name: "box-machine", UID: w.machine().UID}
	w.Must(w.Client.Status().Update(t.Context(), w.sm))
	w.runAgent("java")
	w.want(metav1.ConditionTrue, "Watching", "", written...)

	w.reports("bb")
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "HostChanged", `has the machine ID "bb", and had "aa" first`, written...)
	w.wantEvents("Warning OwnerUnprotected")

	w.Edit(w.node, func() {
		w.node.Annotations[reclaim.RequestedAnnotation] = "true"
		w.node.Annotations[reclaim.ReasonAnnotation] = "process-match: java\nx"
		w.node.Annotations[reclaim.RequestedAtAnnotation] = "2026-04-20T21:45:00Z"
	})
	w.want(metav1.ConditionFalse, "HostChanged", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "HostChanged", "Refused: Emergency reclaim requested (2026-04-20T21:45:00Z): process-match: java x", written...)

	w.reports("aa")
	w.want(metav1.ConditionFalse, "HostChanged", "") // Its owner has requested it: the condition does not change.
	w.Edit(w.node, func() { delete(w.node.Annotations, reclaim.RequestedAnnotation) })
	w.want(metav1.ConditionTrue, "Watching", "", written...)
}

// TestAnOldExitCodeIsNoChangedHost covers a running agent whose earlier run refused a request.
func TestAnOldExitCodeIsNoChangedHost(t *testing.T) {
	w := protected(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: w.node.Name}}
	w.Read(pod)
	pod.Status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"},
	}
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	w.Must(w.Client.Status().Update(t.Context(), pod))
	w.Edit(w.node, func() {
		w.node.Annotations[reclaim.StateAnnotation] = said(reclaim.BlindDetector, reclaim.ConfigFor([]string{"java"}))
	})
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "CannotSeeProcesses", "", written...)
	w.Edit(w.node, func() { w.node.Annotations[reclaim.RequestedAnnotation] = "true" })
	w.want(metav1.ConditionFalse, "CannotSeeProcesses", "") // The request is served: the machine leaves.
	w.pass(time.Minute)
	w.want(metav1.ConditionFalse, "CannotSeeProcesses", "")
}

// TestAnAgentThatRefusedIsNotProtecting covers an agent that refused a request: only the agent can compare the Node
// with the host.
func TestAnAgentThatRefusedIsNotProtecting(t *testing.T) {
	w := protected(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: w.node.Name}}
	w.Read(pod)
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	w.Must(w.Client.Status().Update(t.Context(), pod))
	w.want(metav1.ConditionTrue, "Watching", "")
	w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
	w.want(metav1.ConditionFalse, "HostChanged", "the agent refused a request of the owner", written...)
	w.setReady(true)
	w.want(metav1.ConditionTrue, "Watching", "", written...)
}

// TestAnAgentThatRefusesKeepsItsConfiguration covers an agent that exits with code 3 and is restarted again and again. It
// releases the pods itself.
func TestAnAgentThatRefusesKeepsItsConfiguration(t *testing.T) {
	w := holding(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: w.node.Name}}
	w.Read(pod)
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	w.Must(w.Client.Status().Update(t.Context(), pod))
	w.writes("the Node has not changed")
}

// TestNoHoldWhereRequestsAreRefused covers Nodes whose machine would stay after a request: their pods keep running, also
// while a request stands.
func TestNoHoldWhereRequestsAreRefused(t *testing.T) {
	otherProvider := func(w *world) { w.Edit(w.node, func() { w.node.Spec.ProviderID = "lab:///other" }) }
	for name, tc := range map[string]struct {
		refuse  func(*world)
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"ProviderID": {otherProvider, metav1.ConditionFalse, "HostChanged", `has the provider ID "lab:///other", and its Machine "lab:///box"`},
		"ControlPlane": {func(w *world) {
			m := w.machine()
			w.Edit(m, func() { m.Labels[clusterv1.MachineControlPlaneLabel] = "" })
		}, metav1.ConditionTrue, "HoldUnavailable", "reclaimHold Kill has no effect: an owner's request never removes a machine of a control plane"},
	} {
		t.Run(name, func(t *testing.T) {
			w := holding(t)
			m := w.machine()
			w.Edit(m, func() { m.Spec.ProviderID = "lab:///box" })
			w.annotate(map[string]string{reclaim.RequestedAnnotation: "true"})
			w.writes("the request will be served")
			tc.refuse(w)
			w.Must(w.reconcile())
			w.wantAgent("java") // It has no hold.
			w.annotate(map[string]string{reclaim.StateAnnotation: said("netlink", reclaim.ConfigFor([]string{"java"}))})
			w.pass(15 * time.Second)
			w.want(tc.status, tc.reason, tc.message)
		})
	}
}
