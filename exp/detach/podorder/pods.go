// SPDX-License-Identifier: Apache-2.0

package podorder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder/order"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// These annotations of node-detacher are read as well. The first and the last are on a pod, the other
// is on its DaemonSet.
const (
	podAnnotation       = "node-detacher.variant.run/deletion-priority"
	daemonSetAnnotation = "node-detacher.variant.run/pod-deletion-priority"
	// noEvictionAnnotation with the value "true" has a pod be deleted where others are evicted.
	noEvictionAnnotation = "node-detacher.variant.run/disable-eviction"
)

// leavingTaint keeps pods from coming back to a Node that leaves. The pods that are there stay.
var leavingTaint = corev1.Taint{Key: v1alpha1.NodeLeavingTaint, Effect: corev1.TaintEffectNoSchedule}

// A node is a Node that leaves, with what runs on it.
type node struct {
	*corev1.Node
	pods []corev1.Pod
	// priorities are those of the pods that have one, in the order of pods.
	priorities []*string
}

// observe reads the Node and its pods, nil if there is no Node.
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
	_, begun := n.Annotations[v1alpha1.NodeStoppingPodsAnnotation]
	sets := daemonSets{reader: reader, seen: map[client.ObjectKey]*appsv1.DaemonSet{}}
	for i := range n.pods {
		p := priorityOf(&n.pods[i])
		if p == nil && !begun { // What is written down later counts for nobody.
			if p, err = sets.priorityOf(ctx, &n.pods[i]); err != nil {
				return nil, err
			}
		}
		n.priorities = append(n.priorities, p)
	}
	return n, nil
}

// runs reports whether a pod can be stopped: one that has finished need not be, and one that the
// kubelet made from a file cannot be.
func runs(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// priorityOf is what people wrote on a pod, nil if nothing.
func priorityOf(pod client.Object) *string {
	for _, key := range []string{v1alpha1.PodDeletionPriorityAnnotation, podAnnotation} {
		if text, ok := pod.GetAnnotations()[key]; ok {
			return &text
		}
	}
	return nil
}

// daemonSets are those that have been read, nil for one that is gone.
type daemonSets struct {
	reader client.Reader
	seen   map[client.ObjectKey]*appsv1.DaemonSet
}

// priorityOf is what people wrote on the DaemonSet of a pod, nil if nothing.
func (s daemonSets) priorityOf(ctx context.Context, pod client.Object) (*string, error) {
	owner := workload.DaemonSetOf(pod)
	if owner == nil {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: pod.GetNamespace(), Name: owner.Name}
	set, seen := s.seen[key]
	if !seen {
		set = &appsv1.DaemonSet{}
		switch err := s.reader.Get(ctx, key, set); {
		case apierrors.IsNotFound(err):
			set = nil
		case err != nil:
			return nil, fmt.Errorf("reading DaemonSet %s: %w", key, err)
		}
		s.seen[key] = set
	}
	if set == nil || set.UID != owner.UID {
		return nil, nil
	}
	if text, ok := set.Annotations[daemonSetAnnotation]; ok {
		return &text, nil
	}
	return nil, nil
}

// facts is the border between Kubernetes and the decision.
func (n *node) facts() order.Facts {
	var f order.Facts
	if record, ok := n.Annotations[v1alpha1.NodeStoppingPodsAnnotation]; ok {
		f.Record = &record
	}
	for i := range n.pods {
		p := &n.pods[i]
		pod := order.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Priority: n.priorities[i]}
		if p.DeletionTimestamp != nil {
			pod.Until = p.DeletionTimestamp.Time
		}
		f.Pods = append(f.Pods, pod)
	}
	return f
}

// act decides, writes down what is decided, and deletes the pods whose turn it is. One that
// cannot be deleted keeps no other.
func (s *Step) act(ctx context.Context, d leaving.Departing, n *node) (decision order.Decision, refused []string, err error) {
	f := n.facts()
	f.Now = s.Clock.Now()
	decision = order.Decide(f)
	if decision.Record == nil && len(decision.Delete) == 0 {
		return decision, nil, nil
	}
	remote, err := s.Actuate.Remote(ctx, s.ClusterCache, d.Cluster())
	if err != nil {
		return decision, nil, err
	}
	action := remote.For(actuate.OnNode(d.Machine, "StopPods", f.Now))
	if decision.Record != nil {
		if err := begin(ctx, action, n.Node, *decision.Record); err != nil {
			return decision, nil, fmt.Errorf("tainting Node: %w", err)
		}
		ctrl.LoggerFrom(ctx).Info("Stopping pods in order", "Node", n.Name, "priorities", *decision.Record)
	}
	return decision, stopAll(ctx, action, n, decision.Delete), nil
}

// stopAll deletes pods side by side, and says of those that cannot be stopped yet why. An eviction
// may take as long as podTimeout: those of DaemonSets, which have none, come first, and the others
// in another order each time, so that whom the time does not suffice for is not always the same.
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
	rand.Shuffle(len(then), func(i, j int) { then[i], then[j] = then[j], then[i] }) //nolint:gosec // nobody gains by a guess
	var working sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, do := range slices.Concat(first, then) {
		places <- struct{}{}
		working.Go(func() { defer func() { <-places }(); do() })
	}
	working.Wait()
	var refused []string
	for i, err := range errs {
		if err != nil {
			refused = append(refused, order.Refused(all[i], err))
		}
	}
	return refused
}

// begin taints the Node and writes down which pods are to be stopped, in one patch. It is
// refused with a conflict when the Node has changed since it was read: the list of taints has
// several writers.
func begin(ctx context.Context, action actuate.Action, n *corev1.Node, record string) error {
	before := n.DeepCopy()
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&leavingTaint) }) {
		n.Spec.Taints = append(n.Spec.Taints, leavingTaint)
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.NodeStoppingPodsAnnotation, record)
	return action.PatchLocked(ctx, n, before)
}

// Stopped reports whether pods of a Node were stopped in order, and stay away.
func Stopped(n *corev1.Node) bool {
	_, begun := n.Annotations[v1alpha1.NodeStoppingPodsAnnotation]
	return begun || slices.ContainsFunc(n.Spec.Taints, ofLeaving)
}

// Resume has a Node run all pods again.
func Resume(n *corev1.Node) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, ofLeaving)
	delete(n.Annotations, v1alpha1.NodeStoppingPodsAnnotation)
}

func ofLeaving(t corev1.Taint) bool { return t.Key == v1alpha1.NodeLeavingTaint }

// stop deletes a pod, with its own grace period. A pod of a DaemonSet is not evicted, nor is one whose
// annotation says so; for every other pod disruption budgets count.
func stop(ctx context.Context, action actuate.Action, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	if workload.DaemonSetOf(pod) != nil || pod.Annotations[noEvictionAnnotation] == "true" {
		return action.Delete(ctx, pod)
	}
	return action.EvictPod(ctx, pod)
}
