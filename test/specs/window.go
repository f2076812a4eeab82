// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"errors"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// PhaseFollowsTheWindow opens the window of a machine, closes it, and opens it again: the second time another Machine
// joins.
func PhaseFollowsTheWindow(c *Cluster) {
	c.T.Helper()
	sm := c.Start(c.NewScheduledMachine("window"))
	h := c.Follow(sm)
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	c.WantRunning(sm)
	first := c.Children(sm)

	c.SetSchedule(sm, Closed())
	c.WaitPhase(sm, v1alpha1.PhaseInactive, metav1.ConditionTrue)
	c.WantCleared(sm)
	c.wantGone(first)
	if sm.Status.NextActivation == nil || !sm.Status.NextActivation.After(time.Now().Add(10*time.Hour)) {
		c.T.Errorf("nextActivation must say that the window opens in twelve hours, got %v", sm.Status.NextActivation)
	}
	c.WaitCondition(sm, metav1.Condition{Type: v1alpha1.ScheduledCondition, Status: metav1.ConditionFalse, Reason: "ScheduleInactive"}, "outside schedule")

	c.SetSchedule(sm, Always())
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	if c.Children(sm)[0].GetUID() == first[0].GetUID() {
		c.T.Errorf("the next window must have a Machine of its own")
	}
	h.Want(v1alpha1.PhasePending, v1alpha1.PhaseActive, v1alpha1.PhaseShuttingDown, v1alpha1.PhaseInactive, v1alpha1.PhaseActive)
	c.WaitTransitions(sm, "New -> Pending", "Pending -> Active", "Active -> ShuttingDown", "ShuttingDown -> Inactive")
	c.Remove(sm)
}

// DepartureEvictsAndNamesWhoBlocksIt closes the window of a machine with two pods. The disruption budget of one delays
// the departure until it is deleted. It returns both pods, which were evicted.
func DepartureEvictsAndNamesWhoBlocksIt(c *Cluster) []*corev1.Pod {
	c.T.Helper()
	sm := c.Start(c.NewScheduledMachine("blocked"))
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	pod, pdb := c.RunPinned(sm, "blocked-work")
	free := c.RunPod(sm, "free-work", c.Image)
	node, before := c.Node(sm), c.Children(sm)
	c.SetSchedule(sm, Closed())
	c.WaitPhase(sm, v1alpha1.PhaseShuttingDown, metav1.ConditionFalse)
	c.WaitCondition(sm, metav1.Condition{Type: v1alpha1.MachineReadyCondition, Status: metav1.ConditionFalse, Reason: "DrainingNode"}, pod.Name)
	c.WaitCondition(sm, metav1.Condition{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "ShuttingDown"}, pod.Name)
	c.must(await.Gone(c.timeout(), c.Workload, free))
	c.WantUntouched(pod)
	c.must(await.Object(c.timeout(), c.Workload, node, func() error {
		if !node.Spec.Unschedulable {
			return errors.New("it is not cordoned")
		}
		return nil
	}))
	c.must(c.Workload.Delete(c.timeout(), pdb))
	c.WaitPhase(sm, v1alpha1.PhaseInactive, metav1.ConditionTrue)
	c.WantCleared(sm)
	c.wantGone(before)
	c.must(await.Gone(c.timeout(), c.Workload, node))
	c.Remove(sm)
	return []*corev1.Pod{pod, free}
}

// WantRunning checks the whole status of a running machine.
func (c *Cluster) WantRunning(sm *v1alpha1.ScheduledMachine) {
	c.T.Helper()
	machine := &clusterv1.Machine{}
	c.must(c.Management.Get(c.timeout(), client.ObjectKey{Namespace: sm.Namespace, Name: c.Children(sm)[0].GetName()}, machine))
	st := sm.Status
	if st.NodeRef == nil || st.NodeRef.Name != machine.Status.NodeRef.Name || st.ProviderID != machine.Spec.ProviderID || st.ProviderID == "" {
		c.T.Errorf("the status must name Node and provider ID: %+v", st)
	}
	if st.LastScheduledTime == nil || !st.LastScheduledTime.Equal(&machine.CreationTimestamp) {
		c.T.Errorf("lastScheduledTime must be when the Machine was made: %v", st.LastScheduledTime)
	}
	for kind, reason := range map[string]string{
		v1alpha1.ReadyCondition: "MachineRunning", v1alpha1.ScheduledCondition: "ScheduleActive",
		v1alpha1.MachineReadyCondition: "MachineReady", v1alpha1.ReferencesValidCondition: "ReferencesValid",
	} {
		if got := Condition(sm, kind); got.Status != metav1.ConditionTrue || got.Reason != reason {
			c.T.Errorf("condition %s must be True/%s, got %s/%s: %s", kind, reason, got.Status, got.Reason, got.Message)
		}
	}
	for _, u := range c.Children(sm) {
		labels := u.GetLabels()
		if labels[clusterv1.ClusterNameLabel] != sm.Spec.ClusterName || labels[v1alpha1.ScheduledMachineLabel] != sm.Name {
			c.T.Errorf("%s %s must carry the labels of its Cluster and its ScheduledMachine: %v", u.GetKind(), u.GetName(), labels)
		}
	}
}

// WantCleared checks that the status refers to nothing.
func (c *Cluster) WantCleared(sm *v1alpha1.ScheduledMachine) {
	c.T.Helper()
	st := sm.Status
	if st.MachineRef != nil || st.InfrastructureRef != nil || st.BootstrapRef != nil || st.NodeRef != nil || st.ProviderID != "" {
		c.T.Errorf("references must be cleared when their objects are gone: %+v", st)
	}
}
