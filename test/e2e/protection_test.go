// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// TestWhetherTheOwnerIsHeardIsSeen follows an agent that starts, gets a new list late, ends, and starts again. Its
// process is real, and its pod is simulated.
func TestWhetherTheOwnerIsHeardIsSeen(t *testing.T) {
	t.Parallel()
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		t.Skipf("this machine has no identity for the agent to compare: %v", err)
	}
	l := newLab(t, "heard")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{"e2e-heard"} },
		infrav1.PlaneMachineSpec{MachineID: strings.TrimSpace(string(id))})
	node := l.node(sm)
	l.waitConfigured(workload, node.Name, "e2e-heard")
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionUnknown, "ConfigurationUnconfirmed", node.Name, "older than the manager")
	detector := kernelDetector(t)
	agent := l.startAgent(node, "auto")
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching", node.Name, "detector "+detector)

	l.must(syscall.Kill(agent.PID(), syscall.SIGSTOP))
	l.edit(sm, func() { sm.Spec.KillIfCommands = []string{"e2e-heard-more"} })
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionFalse, "ConfigurationPending", node.Name)
	l.wantEvents(sm, "Warning OwnerUnprotected")
	l.must(syscall.Kill(agent.PID(), syscall.SIGCONT))
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching", "detector "+detector)
	l.wantEvents(sm, "Normal OwnerProtected")

	l.must(agent.Kill())
	l.setAgentReady(node.Name, corev1.ConditionFalse)
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionFalse, "AgentNotRunning", node.Name)
	l.must(agent.Start(timeout(t, patience)))
	l.setAgentReady(node.Name, corev1.ConditionTrue)
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching")

	l.edit(sm, func() { sm.Spec.KillIfCommands = nil })
	l.waitFor(sm, func() error {
		if slices.ContainsFunc(sm.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.OwnerProtectedCondition }) {
			return errors.New("nobody asks for an agent any more, and the condition stays")
		}
		return nil
	})
}

// setAgentReady sets the readiness of the agent's pod on a Node, as a kubelet would.
func (l *lab) setAgentReady(node string, ready corev1.ConditionStatus) {
	l.t.Helper()
	l.until(func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := workload.Client.List(ctx, pods, client.InNamespace(reclaim.Namespace)); err != nil {
			return err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node && p.DeletionTimestamp.IsZero() })
		if i < 0 {
			return errors.New("the DaemonSet has no pod for the Node")
		}
		pod := &pods.Items[i]
		before := pod.DeepCopy()
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == corev1.PodReady {
				pod.Status.Conditions[i].Status = ready
			}
		}
		return workload.Client.Status().Patch(ctx, pod, client.MergeFrom(before))
	})
}
