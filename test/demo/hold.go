// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// shareTime is how long a CPU share is measured.
const shareTime = 500 * time.Millisecond

// chooseHold checks whether the pods of the Node can be held.
func (s *story) chooseHold(context.Context) error {
	err := errors.New("a simulated Node has no pods")
	if s.node == realNode {
		err = realnode.SupportedCgroups(infrav1.CgroupV2)
	}
	s.hold = reclaim.HoldKill
	if err != nil {
		s.hold = reclaim.HoldNone
		s.say("reclaimHold is not shown: %v", err)
	}
	return nil
}

// burn runs a pod that uses CPU, if pods can be held.
func (s *story) burn(ctx context.Context) error {
	if !s.hold.Enabled() {
		return nil
	}
	if err := s.await(ctx, protected); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sm, err := s.scheduledMachine(limited)
	if err != nil {
		return err
	}
	if condition(sm.Status.Conditions, v1alpha1.OwnerProtectedCondition).Reason == v1alpha1.HoldUnavailableReason {
		s.hold = reclaim.HoldNone // The message of the condition, printed by await, says why.
		return nil
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "simulation"},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{
			{Name: "main", Image: plane.PauseImage, Args: []string{"burn"}},
		}},
	}
	if err := s.workload.Client.Create(limited, pod); err != nil {
		return err
	}
	if err := s.workload.Wait(limited, pod, func() (err error) {
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		s.burner, err = s.processOf(pod)
		return err
	}); err != nil {
		return fmt.Errorf("waiting for pod %s: %w", pod.Name, err)
	}
	share, err := s.share()
	for err == nil && share < 1 && limited.Err() == nil { // Other programs may have the cores.
		share, err = s.share()
	}
	if err == nil && share < 1 {
		err = fmt.Errorf("pod %s uses %.1f %% of a core: if its program is old, run `make plane-infrastructure`", pod.Name, share)
	}
	s.say("Pod %s of the cluster uses %.0f %% of a core", pod.Name, share)
	return err
}

// watchPod records when the pod stopped, and its CPU share after that.
func (s *story) watchPod(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	frozen := false
	for ; !frozen && s.burner.Alive() && ctx.Err() == nil; <-tick.C {
		frozen, _ = s.burner.Frozen() // It fails if the process has ended.
	}
	state := "it is frozen"
	if !frozen { // The agent killed it between two reads.
		state = "it has ended"
	}
	s.seen <- event{podStopped, s.clock.Now(), "The pod stopped: " + state}
	if share, err := s.share(); err == nil {
		s.seen <- event{podIdle, s.clock.Now(), fmt.Sprintf("The pod used %.0f %% of a core in the %v since it stopped", share, shareTime)}
	}
}

// share measures the CPU time of the pod, in percent of one core. A pod that has ended uses none.
func (s *story) share() (float64, error) {
	begin := s.clock.Now()
	first, err := s.burner.CPU()
	if err != nil && s.burner.Alive() {
		return 0, err
	}
	tick := time.NewTicker(shareTime / 50)
	defer tick.Stop()
	last := first
	for ; s.clock.Since(begin) < shareTime; <-tick.C {
		if used, err := s.burner.CPU(); err == nil {
			last = used
		}
	}
	return 100 * (last - first).Seconds() / s.clock.Since(begin).Seconds(), nil
}

// sum prints how fast the owner had the machine back.
func (s *story) sum(ctx context.Context, free time.Duration) error {
	sm, err := s.scheduledMachine(ctx)
	if err != nil {
		return err
	}
	report := sm.Status.ReclaimHold
	if report == nil || report.KilledPods == 0 || report.RunningPods > 0 {
		return fmt.Errorf("the agent did not stop all pods: status.reclaimHold is %+v", report)
	}
	s.say("The owner felt: CPU back after %d ms, memory back after %d ms, machine free after %d ms",
		report.FrozenAfterMilliseconds, report.KilledAfterMilliseconds, free.Milliseconds())
	s.say("The agent measured CPU and memory. kubectl 5spot history %s:", nodeName)
	cmd := exec.CommandContext(ctx, s.Program("kubectl-5spot"), "history", nodeName, //nolint:gosec // our own program
		"--namespace", namespace, "--kubeconfig", s.Management.Admin.Kubeconfig)
	out, err := cmd.CombinedOutput()
	s.quote(string(out))
	return err
}

func (s *story) scheduledMachine(ctx context.Context) (*v1alpha1.ScheduledMachine, error) {
	sm := &v1alpha1.ScheduledMachine{}
	return sm, s.Management.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: nodeName}, sm)
}
