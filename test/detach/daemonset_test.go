// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"fmt"
	"slices"
	"testing"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/simulation"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestAPodOfAnIngressIsReplaced deletes a pod, as a rolling update does.
func TestAPodOfAnIngressIsReplaced(t *testing.T) {
	system.Long(t)
	t.Parallel()
	s := newSite(t, "ingress")
	set, _ := s.ingress(appsv1.RollingUpdateDaemonSetStrategyType, false)
	pod := s.ingressPod(0, set)
	s.must(s.Workload.Delete(s.step(), pod))
	s.wantState("box-0", "drain")
	s.must(s.Workload.Get(s.step(), client.ObjectKeyFromObject(pod), pod)) // It still serves.
	next := s.waitIngressPod(0, set, func(p *corev1.Pod) bool { return p.UID != pod.UID && p.DeletionTimestamp.IsZero() })
	s.wantState("box-0", "drain")
	s.wantState("box-1", "ready")
	s.bind(0, next)
	s.wantState("box-0", "ready")
	s.wantNoAttachment()
	if n := s.Node(s.machines[0]); n.Spec.Unschedulable || n.Annotations[expv1.NodeDetachingAnnotation] != "" {
		t.Errorf("the Node itself is changed: %+v, annotations %v", n.Spec, n.Annotations)
	}
}

// TestAnOutdatedIngressIsRolled: one Node after the other. Another load balancer uses kube-proxy's health check; its
// taint must not keep the next pod away.
func TestAnOutdatedIngressIsRolled(t *testing.T) {
	t.Parallel()
	s := newSite(t, "roll")
	set, lb := s.ingress(appsv1.OnDeleteDaemonSetStrategyType, true)
	s.balanced(func(asks *expv1.LoadBalancer) {
		asks.Name, asks.Spec.KubeProxy, asks.Spec.DaemonSets = "asks", &expv1.KubeProxyBalancer{WaitSeconds: new(int32(0))}, lb.Spec.DaemonSets
	})
	var old []*corev1.Pod
	for i := range s.machines {
		old = append(old, s.ingressPod(i, set))
	}
	s.wantRolled(lb, expv1.UpToDateReason)
	s.must(s.Workload.Get(s.step(), client.ObjectKeyFromObject(set), set))
	before := set.DeepCopy()
	set.Spec.Template.Annotations["test/template"] = "2"
	s.must(s.Workload.Patch(s.step(), set, client.MergeFrom(before)))
	for i := range s.machines {
		server, other := fmt.Sprint("box-", i), fmt.Sprint("box-", 1-i)
		s.wantState(server, "drain")
		s.waitIngressPod(i, set, func(p *corev1.Pod) bool { return p.UID == old[i].UID && !p.DeletionTimestamp.IsZero() })
		s.wantState(other, "ready")
		s.waitIngressPod(1-i, set, func(p *corev1.Pod) bool { return p.DeletionTimestamp.IsZero() && workload.Ready(p) })
		next := s.waitIngressPod(i, set, func(p *corev1.Pod) bool { return p.UID != old[i].UID && p.DeletionTimestamp.IsZero() })
		s.wantRolled(lb, expv1.RollingOutReason)
		s.wantState(server, "drain")
		s.bind(i, next)
		s.wantState(server, "ready")
	}
	s.wantRolled(lb, expv1.UpToDateReason)
	s.wantNoAttachment()
}

// wantRolled waits until the LoadBalancer's condition has the reason.
func (s *site) wantRolled(lb *expv1.LoadBalancer, reason string) {
	s.Helper()
	s.must(await.Object(s.step(), s.Management, lb, func() error {
		if c := conditions.Get(lb, expv1.DaemonSetsUpToDateCondition); c == nil || c.Reason != reason {
			return fmt.Errorf("it says %v, not %s", c, reason)
		}
		return nil
	}))
}

// ingress creates a DaemonSet that the load balancer names. Only bind schedules its pods.
func (s *site) ingress(strategy appsv1.DaemonSetUpdateStrategyType, roll bool) (*appsv1.DaemonSet, *expv1.LoadBalancer) {
	s.Helper()
	set := s.daemonSet("ingress", "")
	set.Spec.UpdateStrategy.Type = strategy
	set.Spec.Template.Annotations[simulation.StopAnnotation] = "10s"
	set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(30))
	s.must(s.Workload.Create(s.step(), set))
	lb := s.balance(func(lb *expv1.LoadBalancer) {
		lb.Spec.DaemonSets = []expv1.ServingDaemonSet{{Namespace: set.Namespace, Name: set.Name, Roll: roll}}
	})
	for i := range s.machines {
		s.bind(i, s.ingressPod(i, set))
	}
	for i := range s.machines {
		s.waitIngressPod(i, set, workload.Ready)
	}
	return set, lb
}

// bind binds the pod to the Node of the i-th machine, as the scheduler does.
func (s *site) bind(i int, pod *corev1.Pod) {
	s.Helper()
	s.must(s.Workload.SubResource("binding").Create(s.step(), pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: s.Node(s.machines[i]).Name},
	}))
}

// ingressPod waits for a pod of the DaemonSet for the i-th machine.
func (s *site) ingressPod(i int, set *appsv1.DaemonSet) *corev1.Pod {
	s.Helper()
	return s.waitIngressPod(i, set, func(*corev1.Pod) bool { return true })
}

// waitIngressPod waits for a pod for which want returns true.
func (s *site) waitIngressPod(i int, set *appsv1.DaemonSet, want func(*corev1.Pod) bool) (found *corev1.Pod) {
	s.Helper()
	node := s.Node(s.machines[i]).Name
	s.until(func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := s.Workload.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels(set.Spec.Template.Labels)); err != nil {
			return err
		}
		at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return workload.NodeOf(&p) == node && want(&p) })
		if at < 0 {
			return fmt.Errorf("no such pod on %s among %d", node, len(pods.Items))
		}
		found = &pods.Items[at]
		return nil
	})
	return found
}
