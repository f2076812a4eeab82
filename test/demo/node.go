// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// agentImage is the image that the controller installs on real Nodes. It is preloaded there, and never pulled.
const agentImage = "plane.local/reclaim-agent:demo"

// The kinds of Nodes.
const (
	realNode      = "real"
	simulatedNode = "simulated"
	anyNode       = "auto"
)

// managerArgs are the manager's arguments about the agent that it installs.
func (o options) managerArgs() []string {
	args := []string{"--reclaim-agent-image=" + agentImage}
	if o.detector == "poll" {
		args = append(args, "--reclaim-agent-detector=poll")
	}
	return args
}

// chooseNode checks whether this machine can be a real Node.
func (s *story) chooseNode(ctx context.Context) error {
	if s.node == simulatedNode {
		return nil
	}
	err := s.RealNodes()
	switch {
	case err == nil:
	case s.node == realNode:
		return err
	default:
		s.say("The Node will be simulated: %v", err)
		s.node = simulatedNode
		return nil
	}
	s.say("The Node will be a real one, with kubelet, containerd and the agent's DaemonSet. Its processes, mounts and files go with it")
	s.node = realNode
	return s.ImportImage(ctx, agentImage, s.Program("reclaim-agent"))
}

// machineSpec is the part of a PlaneMachine that selects the kind of Node.
func (s *story) machineSpec() (string, error) {
	if s.node == realNode {
		if s.hold.Enabled() {
			// Providers need seconds to minutes to remove a machine. Without the delay, it could be gone before the agent has
			// reported how fast it was.
			return "backend: Real\n      cgroups: V2\n      faults: {deletionSeconds: 3}", nil
		}
		return "backend: Real", nil
	}
	id, err := s.machineID()
	return fmt.Sprintf("machineID: %q", id), err
}

// An agent watches the processes of this machine.
type agent struct {
	pid int
	// where describes how it was started.
	where string
	// log returns the last lines of its log.
	log func(lines int) string
}

// startAgent runs the agent beside a simulated Node, where it cannot be installed.
func (s *story) startAgent(ctx context.Context) (agent, error) {
	p, err := s.StartAgent(ctx, s.workload, system.AgentOptions{
		Node: nodeName, Patterns: []string{s.game.Name()}, MachineIDPath: s.identity, Args: []string{"--detector=" + s.detector},
	})
	if err != nil {
		return agent{}, err
	}
	return agent{p.PID(), "the demo started it, because a simulated Node has no pods", p.LogTail}, nil
}

// installedAgent waits for the pod of the DaemonSet that the controller installs.
func (s *story) installedAgent(ctx context.Context) (agent, error) {
	var pod corev1.Pod
	err := plane.Until(ctx, func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := s.workload.Client.List(ctx, pods, client.InNamespace(reclaim.Namespace)); err != nil {
			return err
		}
		i := slices.IndexFunc(pods.Items, ready)
		if i < 0 {
			return errors.New("no pod of the agent is Ready")
		}
		pod = pods.Items[i]
		return nil
	})
	if err != nil {
		return agent{}, fmt.Errorf("waiting for the agent's DaemonSet: %w", err)
	}
	process, err := s.processOf(&pod)
	if err != nil {
		return agent{}, err
	}
	log := filepath.Join(s.dir, "nodes", "*", "pods", strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_"), "*", "*.log")
	tail := func(n int) string { return tailOf(log, n) }
	return agent{process.PID, fmt.Sprintf("in pod %s, which the manager installed", client.ObjectKeyFromObject(&pod)), tail}, nil
}

// processOf returns the first process of a pod of the real Node.
func (s *story) processOf(pod *corev1.Pod) (realnode.Process, error) {
	box, err := s.RealNode(client.ObjectKey{Namespace: namespace, Name: nodeName + "-infra"})
	if err != nil {
		return realnode.Process{}, err
	}
	return box.InContainer(pod.Status.ContainerStatuses[0].ContainerID)
}

func ready(pod corev1.Pod) bool {
	return pod.Spec.NodeName == nodeName && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// tailOf returns the last lines of the newest container log that matches a pattern, without the runtime's prefix of
// each line.
func tailOf(pattern string, n int) string {
	logs, _ := filepath.Glob(pattern)
	if len(logs) == 0 {
		return ""
	}
	text, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		return ""
	}
	lines := slices.Collect(strings.Lines(string(text)))
	var tail strings.Builder
	for _, line := range lines[max(0, len(lines)-n):] {
		if _, message, ok := strings.Cut(line, " F "); ok {
			_, _ = tail.WriteString(message)
		}
	}
	return tail.String()
}
