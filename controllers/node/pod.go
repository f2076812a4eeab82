// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// trimPod removes fields that this package does not read. It is a transform of the caches of workload clusters.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
	}}
	trimmed.Spec.NodeName = workload.NodeOf(pod)
	trimmed.Status.Phase, trimmed.Status.Reason = pod.Status.Phase, pod.Status.Reason
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		trimmed.Status.ContainerStatuses = append(trimmed.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, State: c.State, LastTerminationState: c.LastTerminationState,
		})
	}
	return trimmed, nil
}

// agentOn returns the agent's pod on a Node: a Ready one if there is one, else the newest. It returns nil if there is
// none. A pod that is being deleted does not count.
func agentOn(pods []corev1.Pod, node string) *corev1.Pod {
	var found *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		switch {
		case workload.NodeOf(pod) != node, !pod.DeletionTimestamp.IsZero():
		case workload.Ready(pod):
			return pod
		case found == nil, found.CreationTimestamp.Before(&pod.CreationTimestamp):
			found = pod
		}
	}
	return found
}

// running reports whether the first container of a pod runs.
func running(pod *corev1.Pod) bool {
	return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil
}

// exitIdentity is the agent's exit code after it refused a request because of the machine ID.
const exitIdentity = 3

// exits maps the agent's exit codes to their meaning.
var exits = map[int32]string{
	2:            "it cannot start with its flags, configuration or environment",
	exitIdentity: "the Node has another machine's ID",
	4:            "the kernel does not announce processes",
}

// terminationOf returns the latest termination of a container, nil if it has none.
func terminationOf(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

// exitOf returns the latest exit code of the agent, zero if it has none.
func exitOf(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	if ended := terminationOf(pod.Status.ContainerStatuses[0]); ended != nil {
		return ended.ExitCode
	}
	return 0
}

// notReadyReason returns why a pod is not Ready. The text is stable while the cause is the same. A crash-looping
// container alternates between waiting and running, and an image pull between failing and backing off.
func notReadyReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("it is not scheduled (%s)", c.Reason)
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return "it has not been started" + inBrackets(pod.Status.Reason)
	}
	c := pod.Status.ContainerStatuses[0]
	ended := terminationOf(c)
	switch {
	case ended != nil && exits[ended.ExitCode] != "":
		return fmt.Sprintf("its program last exited with code %d: %s", ended.ExitCode, exits[ended.ExitCode])
	case ended != nil:
		return fmt.Sprintf("its program last exited with code %d%s", ended.ExitCode, inBrackets(ended.Reason))
	case c.State.Waiting == nil:
		return "it has not reported what it looks for"
	case slices.Contains([]string{"ErrImagePull", "ImagePullBackOff"}, c.State.Waiting.Reason):
		return "its image cannot be pulled"
	default:
		return "its container waits" + inBrackets(c.State.Waiting.Reason)
	}
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
