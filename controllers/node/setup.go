// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// The names of this controller's watches in workload clusters.
const (
	nodesWatch = "node-nodes"
	podsWatch  = "node-pods"
)

// agentLabels are the labels of the agent's pods, for each way to install it.
var agentLabels = client.MatchingLabels{"app.kubernetes.io/name": "5spot", "app.kubernetes.io/component": "reclaim-agent"}

// CacheByObject configures the caches of workload clusters to hold only the agent's pods, without the fields that this
// package does not read.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Pod{}: {
		Namespaces: map[string]cache.Config{reclaimapi.Namespace: {}},
		Label:      k8slabels.SelectorFromSet(k8slabels.Set(agentLabels)),
		Transform:  trimPod,
	}}
}

// SetupWithManager adds the controller to mgr. clusterIndex is the index of ScheduledMachines by the name of their
// Cluster. Machines have Cluster API's index by Node name.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter, clusterIndex string, opts controller.Options) error {
	if err := metrics.Registry.Register(collector{mgr.GetClient(), mgr.Elected()}); err != nil {
		return fmt.Errorf("registering metrics of %s: %w", name, err)
	}
	log := mgr.GetLogger().WithValues("controller", name)
	mapper := wake.Mapper{Reader: r.Reader, ClusterIndex: clusterIndex}
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
			builder.WithPredicates(predicates.ClusterPausedTransitions(mgr.GetScheme(), log))).
		WatchesRawSource(r.ClusterCache.GetClusterSource(name, mapper.OfCluster, clustercache.WatchForProbeFailure(workload.UnreachableAfter))).
		WatchesRawSource(source.Channel(r.Results.Changes(), handler.EnqueueRequestsFromMapFunc(mapper.OfCluster))).
		WithOptions(opts).
		Build(telemetry.Counted(name, r))
	if err != nil {
		return fmt.Errorf("building %s controller: %w", name, err)
	}
	watch := workload.Watch{Cache: r.ClusterCache, Controller: c}
	r.nodes, r.pods = watch, watch
	r.nodes.Name, r.nodes.Kind, r.nodes.Map, r.nodes.Predicate = nodesWatch, &corev1.Node{}, mapper.OfNode, wake.Changes(nodeFacts)
	r.pods.Name, r.pods.Kind, r.pods.Predicate = podsWatch, &corev1.Pod{}, wake.Changes(podFacts)
	r.pods.Map = func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil
		}
		node := &corev1.Node{}
		node.Name = workload.NodeOf(pod)
		return mapper.OfNode(ctx, cluster, node)
	}
	return nil
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
func nodeFacts(obj client.Object) any {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj
	}
	s := scope{scheduled: &v1alpha1.ScheduledMachine{}, node: node}
	return []any{
		node.UID, s.taintFacts(), conditionsOf(node), node.Status.NodeInfo.MachineID, node.DeletionTimestamp.IsZero(),
		node.Annotations[reclaimapi.StateAnnotation], reclaimapi.Requested(node.Annotations),
	}
}

// podFacts returns the parts of the agent's pod that a decision depends on.
func podFacts(obj client.Object) any {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj
	}
	return []any{pod.UID, workload.NodeOf(pod), troubleOf(pod), pod.DeletionTimestamp.IsZero(), running(pod), workload.Ready(pod)}
}
