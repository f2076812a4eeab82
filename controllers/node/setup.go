// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// The names of this controller's watches in workload clusters.
const (
	nodesWatch      = "node-nodes"
	podsWatch       = "node-pods"
	configMapsWatch = "node-configmaps"
)

// CacheByObject configures the caches of workload clusters to hold only the agent's pods, without the fields that this
// package does not read.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Pod{}: {
		Namespaces: map[string]cache.Config{reclaimapi.Namespace: {}},
		Label:      k8slabels.SelectorFromSet(k8slabels.Set(installed.AgentLabels)),
		Transform:  trimPod,
	}}
}

// SetupWithManager adds the controller to mgr. Machines have Cluster API's index by Node name.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", name)
	mapper := wake.Mapper{Reader: r.Reader}
	r.watchFilter, r.retries = watchFilter, wake.Backoff()
	opts.RateLimiter = wake.Backoff()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&v1alpha1.ScheduledMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter),
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapper.OfHost), builder.WithPredicates(predicate.Or(wake.NodeOfMachine(), departureProgresses()))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapper.OfCluster),
			builder.WithPredicates(predicate.Or(predicates.ClusterPausedTransitions(mgr.GetScheme(), log), wake.Changes(installationOf)))).
		WatchesRawSource(r.ClusterCache.GetClusterSource(name, mapper.OfCluster, clustercache.WatchForProbeFailure(workload.UnreachableAfter))).
		WithOptions(opts).
		Build(telemetry.Counted(name, r))
	if err != nil {
		return fmt.Errorf("building %s controller: %w", name, err)
	}
	of := func(nodeOf func(client.Object) string) func(context.Context, client.ObjectKey, client.Object) []ctrl.Request {
		return func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request {
			return mapper.OfNode(ctx, cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(obj)}})
		}
	}
	r.nodes = workload.Watch{
		Name: nodesWatch, Kind: &corev1.Node{}, Cache: r.ClusterCache, Controller: c, Map: mapper.OfNode, Predicate: wake.Changes(nodeFacts),
	}
	r.pods = workload.Watch{
		Name: podsWatch, Kind: &corev1.Pod{}, Cache: r.ClusterCache, Controller: c, Map: of(nodeOfPod), Predicate: wake.Changes(podFacts),
	}
	r.configMaps = workload.Watch{
		Name: configMapsWatch, Kind: &corev1.ConfigMap{}, Cache: r.ClusterCache, Controller: c, Map: of(installed.NodeOf),
		Predicate: predicate.ResourceVersionChangedPredicate{},
	}
	return nil
}

func nodeOfPod(obj client.Object) string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return ""
	}
	return workload.NodeOf(pod)
}

// installationOf returns the result of the installation in a Cluster.
func installationOf(cluster *clusterv1.Cluster) any {
	return (&scope{cluster: cluster}).installation()
}

// departureProgresses filters for progress of a departure: the departure record and the drain.
func departureProgresses() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*clusterv1.Machine)
			after, ok2 := e.ObjectNew.(*clusterv1.Machine)
			return !ok || !ok2 || drained(before) != drained(after) ||
				before.Annotations[v1alpha1.DepartureAnnotation] != after.Annotations[v1alpha1.DepartureAnnotation]
		},
	}
}

// nodeFacts returns the parts of a Node that a decision depends on. Most updates of a Node are heartbeats.
func nodeFacts(node *corev1.Node) any {
	s := scope{scheduled: &v1alpha1.ScheduledMachine{}, node: node}
	return []any{
		node.UID, s.taintFacts(), conditionsOf(node), node.Status.NodeInfo.MachineID, node.Spec.ProviderID, node.DeletionTimestamp.IsZero(),
		node.Labels[reclaimapi.AgentLabel], node.Annotations[reclaimapi.StateAnnotation], node.Annotations[reclaimapi.HoldAnnotation], reclaimapi.Requested(node.Annotations),
	}
}

// podFacts returns the parts of the agent's pod that a decision depends on.
func podFacts(pod *corev1.Pod) any {
	return []any{pod.UID, workload.NodeOf(pod), notReadyReason(pod), pod.DeletionTimestamp.IsZero(), running(pod), workload.Ready(pod)}
}
