// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KillSwitchTakesTheMachineOutWithoutDrain turns the kill switch on and off again. It returns the pod that ran there,
// which must not have been evicted.
func KillSwitchTakesTheMachineOutWithoutDrain(c *Cluster) *corev1.Pod {
	c.T.Helper()
	sm := c.Start(c.NewScheduledMachine("kill"))
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	h := c.Follow(sm)
	pod, _ := c.RunPinned(sm, "kill-work")
	before := c.Children(sm)
	c.SetKillSwitch(sm, true)
	c.WaitPhase(sm, v1alpha1.PhaseTerminated, metav1.ConditionTrue)
	c.WantCleared(sm)
	c.wantGone(before)
	c.WaitEvents(sm, "Warning Terminating Active -> Terminated")
	c.SetKillSwitch(sm, false)
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	h.Want(v1alpha1.PhaseActive, v1alpha1.PhaseTerminated, v1alpha1.PhasePending, v1alpha1.PhaseActive)
	// The pod may be bound to a new Node with this name.
	c.SetKillSwitch(sm, true)
	c.Remove(sm)
	return pod
}

// A Reclaimed machine was given back to its owner.
type Reclaimed struct {
	// Pod ran there, and no client tried to evict it.
	Pod *corev1.Pod
	// Node is the Node with the request. It was not deleted.
	Node *corev1.Node
}

// OwnerGetsTheMachineBack makes an owner's request with the annotations of the Node. It calls asking, which may be nil,
// just before.
func OwnerGetsTheMachineBack(c *Cluster, asking func()) Reclaimed {
	c.T.Helper()
	sm := c.Start(c.NewScheduledMachine("owner"))
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	h := c.Follow(sm)
	pod, _ := c.RunPinned(sm, "owner-work")
	node, before := c.Node(sm), c.Children(sm)
	c.KeepNode(node)
	if asking != nil {
		asking()
	}
	c.AskBack(node, "java")
	c.WantReclaimed(sm, "java")
	c.wantGone(before)
	c.WaitCleared(node)
	h.Want(v1alpha1.PhaseActive, v1alpha1.PhaseEmergencyRemove, v1alpha1.PhaseDisabled)
	c.WaitEvents(sm, "Warning EmergencyReclaim Emergency reclaim requested", "process-match: java",
		"Warning EmergencyReclaimDisabledSchedule", "kubectl 5spot -n "+sm.Namespace+" resume "+sm.Name)
	return Reclaimed{Pod: pod, Node: node}
}
