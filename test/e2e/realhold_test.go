// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
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

// TestARealNodeHoldsItsPods has a kubelet, containerd and runc on cgroup v2. During a pause the request of the owner
// stands, so the hold can be seen: running and new pods freeze, the node stays Ready, and the pods continue when the
// request is removed. Then the pods are killed, and the machine is given back.
func TestARealNodeHoldsItsPods(t *testing.T) {
	t.Parallel()
	if err := realnode.SupportedCgroups(infrav1.CgroupV2); err != nil {
		t.Skip(err)
	}
	const game, image = "e2e-held", "plane.local/held:1"
	l, program := newRealLabWith(t, "realhold", game, image)
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.KillIfCommands, sm.Spec.ReclaimHold = []string{game}, reclaim.HoldFreezeOnly
	}, infrav1.PlaneMachineSpec{Backend: infrav1.Real, Cgroups: infrav1.CgroupV2})
	l.waitAgent(sm)
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching", l.node(sm).Name)
	box, err := shared.RealNode(client.ObjectKeyFromObject(familyOf(sm).infra))
	l.must(err)
	first := l.runImage(sm, "first", image)

	l.pauseCluster(sm)
	owner := l.startCommand("sh", "-c", "exec "+program)
	l.waitFrozen(box, first, true)
	late := first.DeepCopy() // The runtime cannot finish its start before the pods are released.
	late.ObjectMeta = metav1.ObjectMeta{Namespace: first.Namespace, Name: "late"}
	l.must(l.Client.Create(timeout(t, patience), late))
	l.waitFrozen(box, late, true)
	l.wantUntouched(owner)
	l.waitNode(sm, func(node *corev1.Node) error {
		if state, ok := reclaim.ParseHoldState(node.Annotations[reclaim.HoldAnnotation]); !ok || state.Pods == 0 {
			return fmt.Errorf("its agent reports %q", node.Annotations[reclaim.HoldAnnotation])
		}
		return nil
	})
	ready := func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := l.Client.Get(ctx, client.ObjectKey{Name: sm.Status.NodeRef.Name}, node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("a held Node is not Ready")
	}
	holds(t, 10*time.Second, ready)

	l.must(owner.Process.Kill())
	l.annotate(l.node(sm), map[string]string{reclaim.RequestedAnnotation: "false"})
	l.waitFrozen(box, first, false)
	l.must(l.Wait(timeout(t, longPatience), late, func() error {
		if late.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", late.Status.Phase)
		}
		return nil
	}))
	l.waitNode(sm, func(node *corev1.Node) error {
		if text, ok := node.Annotations[reclaim.HoldAnnotation]; ok {
			return fmt.Errorf("its agent reports %q after the hold", text)
		}
		return nil
	})
	l.unpauseCluster()
	l.edit(sm, func() { sm.Spec.ReclaimHold = reclaim.HoldKill })
	l.waitAgent(sm)
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching", l.node(sm).Name)

	l.pauseCluster(sm)
	killed, err := box.InContainer(first.Status.ContainerStatuses[0].ContainerID)
	l.must(err)
	owner = l.startCommand("sh", "-c", "exec "+program)
	l.until(func(context.Context) error {
		if killed.Alive() {
			return errors.New("the process of a pod is not killed")
		}
		return nil
	})
	l.unpauseCluster()
	l.wantReclaimed(sm, game)
	if r := sm.Status.ReclaimHold; r == nil || r.KilledPods < 2 || r.FrozenPods < r.KilledPods {
		t.Errorf("two pods at least were killed: %+v", r)
	}
	if left, err := box.Traces(); err != nil || len(left) > 0 {
		t.Errorf("the machine must be as it was before it was lent: %v, %v", left, err)
	}
	l.wantUntouched(owner)
}

// waitFrozen waits until the process of a pod is frozen, or is not.
func (l *lab) waitFrozen(box plane.RealNode, pod *corev1.Pod, want bool) {
	l.t.Helper()
	l.until(func(context.Context) error {
		p, err := box.InContainer("pod://" + string(pod.UID)) // It is in the path of the cgroup.
		if err != nil {
			return err
		}
		if frozen, err := p.Frozen(); err != nil || frozen != want {
			return fmt.Errorf("pod %s is frozen: %t, %w", pod.Name, frozen, err)
		}
		return nil
	})
}

func (l *lab) waitNode(sm *v1alpha1.ScheduledMachine, cond func(*corev1.Node) error) {
	l.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: sm.Status.NodeRef.Name}}
	l.must(l.Wait(timeout(l.t, patience), node, func() error { return cond(node) }))
}
