// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// nodeField is the index of pods by Node.
const nodeField = "spec.nodeName"

// daemonSet is a DaemonSet that LoadBalancers name in spec.daemonSets.
type daemonSet struct {
	client.ObjectKey
	// balancers are the names of these LoadBalancers. rolled means that at least one of them sets roll.
	balancers []string
	rolled    bool
}

// servingDaemonSets returns the DaemonSets that the LoadBalancers name, sorted.
func servingDaemonSets(balancers []expv1.LoadBalancer) (sets []daemonSet) {
	for i := range balancers {
		for _, d := range balancers[i].Spec.DaemonSets {
			key := client.ObjectKey{Namespace: d.Namespace, Name: d.Name}
			at := slices.IndexFunc(sets, func(s daemonSet) bool { return s.ObjectKey == key })
			if at < 0 {
				at, sets = len(sets), append(sets, daemonSet{ObjectKey: key})
			}
			sets[at].balancers, sets[at].rolled = append(sets[at].balancers, balancers[i].Name), sets[at].rolled || d.Roll
		}
	}
	slices.SortFunc(sets, func(a, b daemonSet) int { return cmp.Compare(a.String(), b.String()) })
	return sets
}

// namespacesOf returns the namespaces of the DaemonSets, sorted and without duplicates.
func namespacesOf(sets []daemonSet) (all []string) {
	for _, s := range sets {
		all = append(all, s.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// remoteCache reads pods and DaemonSets of workload clusters from a separate cache. workload.NamespaceCache implements
// it.
type remoteCache interface {
	Reader(ctx context.Context, cluster client.ObjectKey, namespaces []string) (client.Reader, error)
	Stop(cluster client.ObjectKey)
}

// newPodCache returns a cache of the DaemonSets, and of their pods, in the namespaces that Reader requests.
func (r *NodeReconciler) newPodCache(c controller.Controller) *workload.NamespaceCache {
	ofDaemonSets, err := k8slabels.Parse(appsv1.ControllerRevisionHashLabelKey)
	utilruntime.Must(err) // The selector is constant.
	return &workload.NamespaceCache{
		Cache: r.ClusterCache, Controller: c, All: r.all,
		Kinds: []workload.CachedKind{{
			Kind: &corev1.Pod{}, Map: r.ofPod, Predicate: wake.Changes(podMatters),
			Keep:  cache.ByObject{Label: ofDaemonSets, Transform: workload.TrimDaemonPod},
			Index: map[string]client.IndexerFunc{nodeField: podNode},
		}, {
			Kind: &appsv1.DaemonSet{}, Map: r.ofDaemonSet, Predicate: wake.Changes(setMatters),
			Keep: cache.ByObject{Transform: workload.TrimDaemonSet},
		}},
	}
}

// podNode is the index function of pods by Node.
func podNode(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	return []string{workload.NodeOf(pod)}
}

// ofPod returns the Node and the Cluster of a pod if a LoadBalancer names its DaemonSet. The Cluster may have a roll.
func (r *NodeReconciler) ofPod(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	balancers, err := balancersOf(ctx, r.Reader, cluster)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LoadBalancers")
	}
	if !slices.ContainsFunc(servingDaemonSets(balancers), func(s daemonSet) bool { return s.owns(pod) }) {
		return nil
	}
	return []ctrl.Request{requestFor(cluster, workload.NodeOf(pod)), requestFor(cluster, "")}
}

// ofDaemonSet returns the Cluster.
func (r *NodeReconciler) ofDaemonSet(_ context.Context, cluster client.ObjectKey, _ client.Object) []ctrl.Request {
	return []ctrl.Request{requestFor(cluster, "")}
}

// owns reports whether the pod belongs to the DaemonSet.
func (s daemonSet) owns(pod *corev1.Pod) bool {
	owner := workload.DaemonSetOf(pod)
	return owner != nil && s.ObjectKey == client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}
}

// podMatters returns the fields of a pod that a decision depends on.
func podMatters(pod *corev1.Pod) any {
	return []any{podFacts(pod), workload.NodeOf(pod), workload.DaemonSetOf(pod)}
}

func podFacts(pod *corev1.Pod) plan.Pod {
	return plan.Pod{
		UID: string(pod.UID), Revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey],
		Terminating: !pod.DeletionTimestamp.IsZero(), Ready: workload.Ready(pod),
	}
}

// setMatters returns the fields of a DaemonSet that a decision depends on.
func setMatters(set *appsv1.DaemonSet) any {
	return []any{
		set.UID, set.Generation, set.Spec.UpdateStrategy.Type, set.Status.ObservedGeneration,
		set.Status.DesiredNumberScheduled, set.Status.UpdatedNumberScheduled,
	}
}

// observePods reads the pods of the DaemonSets on the Node.
func (s *scope) observePods(ctx context.Context) {
	if s.node == nil {
		return
	}
	for _, set := range s.sets {
		d := plan.DaemonSet{Name: set.String(), LoadBalancers: set.balancers, Rolled: set.rolled}
		if s.daemonSetReader != nil {
			pods, err := set.pods(ctx, s.daemonSetReader, client.MatchingFields{nodeField: s.node.Name})
			d.Known, s.daemonSetErr = err == nil, errors.Join(s.daemonSetErr, err)
			for i := range pods {
				d.Pods = append(d.Pods, podFacts(&pods[i]))
			}
		}
		s.daemonSets = append(s.daemonSets, d)
	}
}

// pods lists the pods of the DaemonSet. The results may share memory with the cache.
func (s daemonSet) pods(ctx context.Context, reader client.Reader, opts ...client.ListOption) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, append(opts, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing pods of DaemonSet %s: %w", s, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !s.owns(&p) }), nil
}

// replacements converts the recorded replacements for package plan.
func replacements(recorded []expv1.ReplacedPod) (all []plan.Replacement) {
	for _, p := range recorded {
		all = append(all, plan.Replacement{DaemonSet: p.Namespace + "/" + p.Name, Pod: string(p.PodUID)})
	}
	return all
}

// replaced converts replacements to the API type. It keeps the start time of recorded ones.
func replaced(recorded []expv1.ReplacedPod, all []plan.Replacement, now metav1.Time) (pods []expv1.ReplacedPod) {
	for _, r := range all {
		p := expv1.ReplacedPod{PodUID: types.UID(r.Pod), StartTime: now}
		p.Namespace, p.Name, _ = strings.Cut(r.DaemonSet, "/")
		if i := slices.Index(replacements(recorded), r); i >= 0 {
			p.StartTime = recorded[i].StartTime
		}
		pods = append(pods, p)
	}
	return pods
}
