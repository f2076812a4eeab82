// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// TestTheOwnerSeesWhatIsBack has its own workload cluster, because a hold changes the installation of the Cluster. The
// test writes the agent's report.
func TestTheOwnerSeesWhatIsBack(t *testing.T) {
	t.Parallel()
	l := newNamespace(t, "reclaimhold")
	l.newWorkload(plane.WorkloadOptions{ClusterOptions: plane.ClusterOptions{NodeMonitorGrace: 10 * time.Minute}})
	sm := l.scheduledMachine("box", infrav1.PlaneMachineSpec{Faults: infrav1.Faults{Deletion: infrav1.Hang}})
	sm.Spec.KillIfCommands = []string{"java"}
	l.create(sm)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: sm.Status.NodeRef.Name}}
	l.waitConfigured(l.Cluster, node.Name, "java")
	l.wantAgentPod("an agent without a hold has no writable mount", func(mounts bool) bool { return !mounts })

	l.edit(sm, func() { sm.Spec.ReclaimHold = reclaim.HoldKill })
	l.wantAgentPod("the policy refuses the mount, or the DaemonSet lacks it", func(mounts bool) bool { return mounts })
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(node.Name)}}
	l.must(l.Wait(timeout(t, patience), cm, func() error {
		if text := cm.Data[reclaim.ConfigMapKey]; text != sm.Spec.AgentConfig().Text() {
			return fmt.Errorf("the agent has %s", text)
		}
		return nil
	}))

	l.must(l.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(node), node))
	f, hold := l.family(sm), reclaim.HoldState{Pods: 8, CPU: 9 * time.Millisecond}
	l.specs().Annotate(node, map[string]string{reclaim.HoldAnnotation: hold.Text()})
	l.askBack(node, "java")
	want := &v1alpha1.HoldReport{FrozenPods: 8, FrozenAfterMilliseconds: 9}
	l.waitHold(sm, want)
	hold.Killed, hold.Memory = 8, 180*time.Millisecond
	want.KilledPods, want.KilledAfterMilliseconds = 8, 180
	l.specs().Annotate(node, map[string]string{reclaim.HoldAnnotation: hold.Text()})
	l.waitHold(sm, want)
	l.waitPhase(sm, emergency, metav1.ConditionFalse)
	owner := l.owner("reclaimhold-owner")
	wantInOrder(t, owner.run("why", sm.Name), "State:", "Returning", "the CPU is back after 9ms: 8 pods are frozen",
		"the memory is back after 180ms: 8 pods are killed", "the Machine is deleted", "it waits for the provider of PlaneMachine "+f.infra.Name)

	l.edit(f.infra, func() { f.infra.Spec.Faults.Deletion = "" })
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	wantInOrder(t, owner.run("why", sm.Name), "Returned", "CPU after 9ms, memory after 180ms, Machine deleted after", "box free after")
	wantInOrder(t, owner.run("history", sm.Name), "REQUESTED", "9ms", "180ms", "java")
	list := sm.GiveBacks()
	if len(list) != 1 || list[0].DeletedAt == "" || cmp.Diff(want, list[0].Hold) != "" {
		t.Errorf("recorded %+v", list)
	}

	l.edit(sm, func() { sm.Spec.ReclaimHold = reclaim.HoldNone })
	wantInOrder(t, owner.run("resume", sm.Name), "on again")
	l.waitPhase(sm, active, metav1.ConditionTrue)
	l.wantAgentPod("the mount stays after the last hold", func(mounts bool) bool { return !mounts })
	l.waitHold(sm, nil)
	if len(sm.GiveBacks()) != 1 {
		t.Errorf("the record is lost: %v", sm.Annotations)
	}
}

// wantAgentPod waits until the only pod of the agent has, or has not, a mount of the host's cgroup files.
func (l *lab) wantAgentPod(why string, want func(mounts bool) bool) {
	l.t.Helper()
	l.until(func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := l.Client.List(ctx, pods, client.InNamespace(reclaim.Namespace)); err != nil {
			return err
		}
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !p.DeletionTimestamp.IsZero() })
		if len(pods.Items) != 1 {
			return fmt.Errorf("there are %d pods of the agent", len(pods.Items))
		}
		c := pods.Items[0].Spec.Containers[0]
		writable := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == "/host/cgroup" && !m.ReadOnly
		})
		if writable != slices.Contains(c.Env, corev1.EnvVar{Name: "CGROUP_ROOT", Value: "/host/cgroup"}) || !want(writable) {
			return fmt.Errorf("%s: %v", why, c.Env)
		}
		return nil
	})
}

func (l *lab) waitHold(sm *v1alpha1.ScheduledMachine, want *v1alpha1.HoldReport) {
	l.t.Helper()
	l.waitFor(sm, func() error {
		if diff := cmp.Diff(want, sm.Status.ReclaimHold); diff != "" {
			return fmt.Errorf("-want, +got:\n%s", diff)
		}
		return nil
	})
}
