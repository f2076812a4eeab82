// SPDX-License-Identifier: Apache-2.0

package podorder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder/order"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// Annotations of node-detacher that 5-Spot also reads. podAnnotation and noEvictionAnnotation are on a pod,
// daemonSetAnnotation is on its DaemonSet.
const (
	podAnnotation       = "node-detacher.variant.run/deletion-priority"
	daemonSetAnnotation = "node-detacher.variant.run/pod-deletion-priority"
	// noEvictionAnnotation with the value "true" means that the pod is deleted instead of evicted.
	noEvictionAnnotation = "node-detacher.variant.run/disable-eviction"
)

// leavingTaint keeps new pods away from a Node that leaves. It does not evict running pods.
var leavingTaint = corev1.Taint{Key: v1alpha1.NodeLeavingTaint, Effect: corev1.TaintEffectNoSchedule}

// node is a leaving Node with its pods. facts are the same for package order.
type node struct {
	*corev1.Node
	pods  []corev1.Pod
	facts order.Facts
}

// observe reads the Node and its pods live. It returns nil if the Node does not exist.
func (s *Step) observe(ctx context.Context, d leaving.Departing) (*node, error) {
	reader, err := workload.Live(ctx, s.ClusterCache, d.Cluster())
	if err != nil {
		return nil, err
	}
	n := &node{}
	if n.Node, err = workload.Node(ctx, reader, d.Node); err != nil || n.Node == nil {
		return nil, err
	}
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, client.MatchingFields{"spec.nodeName": d.Node}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	n.pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !runs(&p) })
	if record, ok := n.Annotations[v1alpha1.NodeStoppingPodsAnnotation]; ok {
		n.facts.Record = &record
	}
	for i := range n.pods {
		p := &n.pods[i]
		f := order.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Priority: priorityOf(p)}
		if f.Priority == nil && n.facts.Record == nil { // After the record is written, new annotations of a DaemonSet have no effect.
			if f.Priority, err = daemonSetPriority(ctx, reader, p); err != nil {
				return nil, err
			}
		}
		if p.DeletionTimestamp != nil {
			f.Until = p.DeletionTimestamp.Time
		}
		n.facts.Pods = append(n.facts.Pods, f)
	}
	return n, nil
}

// runs reports whether a pod can be stopped. A finished pod need not be stopped, and a static pod cannot be.
func runs(p *corev1.Pod) bool {
	return !metav1.HasAnnotation(p.ObjectMeta, corev1.MirrorPodAnnotationKey) && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// priorityOf returns the priority annotation of a pod, nil if it has none.
func priorityOf(pod client.Object) *string {
	for _, key := range []string{v1alpha1.PodDeletionPriorityAnnotation, podAnnotation} {
		if text, ok := pod.GetAnnotations()[key]; ok {
			return &text
		}
	}
	return nil
}

// daemonSetPriority returns the priority annotation of a pod's DaemonSet, nil if it has none.
func daemonSetPriority(ctx context.Context, reader client.Reader, pod client.Object) (*string, error) {
	owner := workload.DaemonSetOf(pod)
	if owner == nil {
		return nil, nil
	}
	set, key := &appsv1.DaemonSet{}, client.ObjectKey{Namespace: pod.GetNamespace(), Name: owner.Name}
	if err := reader.Get(ctx, key, set); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading DaemonSet %s: %w", key, err)
	}
	if set.UID != owner.UID {
		return nil, nil
	}
	if text, ok := set.Annotations[daemonSetAnnotation]; ok {
		return &text, nil
	}
	return nil, nil
}

// act decides, writes the record, and stops the pods of the current group. refused has a text for each pod that could
// not be stopped; such a pod does not affect others.
func (s *Step) act(ctx context.Context, d leaving.Departing, n *node) (decision order.Decision, refused []string, err error) {
	n.facts.Now = s.Clock.Now()
	decision = order.Decide(n.facts)
	if decision.Record == nil && len(decision.Delete) == 0 {
		return decision, nil, nil
	}
	remote, err := s.Actuate.Remote(ctx, s.ClusterCache, d.Cluster())
	if err != nil {
		return decision, nil, err
	}
	action := remote.For(actuate.OnNode(d.Machine, "StopPods", n.facts.Now))
	if decision.Record != nil {
		if err := begin(ctx, action, n.Node, *decision.Record); err != nil {
			return decision, nil, fmt.Errorf("tainting Node: %w", err)
		}
		ctrl.LoggerFrom(ctx).Info("Stopping pods in order", "Node", n.Name, "priorities", *decision.Record)
	}
	return decision, stopAll(ctx, action, n, decision.Delete), nil
}

// stopAll stops pods concurrently, and returns why pods could not be stopped. An eviction may take up to podTimeout. So
// pods of DaemonSets, which are deleted, come first. The others come in random order, so that a timeout does not always
// affect the same pods.
func stopAll(ctx context.Context, action actuate.Action, n *node, all []order.Pod) []string {
	errs := make([]error, len(all))
	var first, then []func()
	for i, p := range all {
		pod := &n.pods[slices.IndexFunc(n.pods, func(pod corev1.Pod) bool { return string(pod.UID) == p.UID })]
		if workload.DaemonSetOf(pod) != nil {
			first = append(first, func() { errs[i] = stop(ctx, action, pod) })
		} else {
			then = append(then, func() { errs[i] = stop(ctx, action, pod) })
		}
	}
	rand.Shuffle(len(then), func(i, j int) { then[i], then[j] = then[j], then[i] }) //nolint:gosec // not a secret
	// A call after the end of ctx fails, and is reported, too.
	calls := slices.Concat(first, then)
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), atOnce, len(calls), func(i int) { calls[i]() })
	var refused []string
	for i, err := range errs {
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s cannot be stopped yet: %v", all[i], err))
		}
	}
	return refused
}

// begin adds the taint to the Node and records which pods will be stopped, in one locked patch. It returns a conflict
// if the Node has changed since it was read, because the list of taints has several writers.
func begin(ctx context.Context, action actuate.Action, n *corev1.Node, record string) error {
	before := n.DeepCopy()
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&leavingTaint) }) {
		n.Spec.Taints = append(n.Spec.Taints, leavingTaint)
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.NodeStoppingPodsAnnotation, record)
	return action.PatchLocked(ctx, n, before)
}

// Stopped reports whether 5-Spot has stopped pods of the Node in order, and keeps new ones away.
func Stopped(n *corev1.Node) bool {
	return metav1.HasAnnotation(n.ObjectMeta, v1alpha1.NodeStoppingPodsAnnotation) || slices.ContainsFunc(n.Spec.Taints, ofLeaving)
}

// Resume removes the taint and the record from the Node, so that it accepts pods again. The caller writes the Node.
func Resume(n *corev1.Node) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, ofLeaving)
	delete(n.Annotations, v1alpha1.NodeStoppingPodsAnnotation)
}

func ofLeaving(t corev1.Taint) bool { return t.Key == v1alpha1.NodeLeavingTaint }

// stop deletes or evicts a pod, with the pod's own grace period. It deletes pods of DaemonSets and pods with
// noEvictionAnnotation. Evictions respect disruption budgets.
func stop(ctx context.Context, action actuate.Action, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	if workload.DaemonSetOf(pod) != nil || pod.Annotations[noEvictionAnnotation] == "true" {
		return action.Delete(ctx, pod)
	}
	return action.EvictPod(ctx, pod)
}
