// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
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
	nodesWatch = "protection-nodes"
	podsWatch  = "protection-pods"
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
		return fmt.Errorf("registering metrics of protection: %w", err)
	}
	log := mgr.GetLogger().WithValues("controller", "protection")
	mapper := wake.Mapper{Reader: r.Reader, ClusterIndex: clusterIndex}
	ofCluster := func(ctx context.Context, cluster client.Object) []ctrl.Request {
		return mapper.OfClusterIf(ctx, client.ObjectKeyFromObject(cluster), concerns)
	}
	r.watchFilter = watchFilter
	opts.RateLimiter = wake.Backoff()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("protection").
		For(&v1alpha1.ScheduledMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter), concerned(),
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapper.OfHost), builder.WithPredicates(wake.NodeOfMachine())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster),
			builder.WithPredicates(predicates.ClusterPausedTransitions(mgr.GetScheme(), log))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("protection", ofCluster, clustercache.WatchForProbeFailure(workload.UnreachableAfter))).
		WatchesRawSource(source.Channel(r.Results.Changes(), handler.EnqueueRequestsFromMapFunc(ofCluster))).
		WithOptions(opts).
		Build(telemetry.Counted("protection", r))
	if err != nil {
		return fmt.Errorf("building protection controller: %w", err)
	}
	r.nodes = workload.Watch{
		Name: nodesWatch, Kind: &corev1.Node{}, Cache: r.ClusterCache, Controller: c, Map: mapper.OfNode, Predicate: changes(nodeStateOf),
	}
	r.pods = workload.Watch{
		Name: podsWatch, Kind: &corev1.Pod{}, Cache: r.ClusterCache, Controller: c, Predicate: changes(podStateOf),
		Map: func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []ctrl.Request {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return nil
			}
			node := &corev1.Node{}
			node.Name = workload.NodeOf(pod)
			return mapper.OfNode(ctx, cluster, node)
		},
	}
	return nil
}

// concerns reports whether a ScheduledMachine uses the agent, or has the condition OwnerProtected.
func concerns(sm *v1alpha1.ScheduledMachine) bool {
	return len(sm.Spec.KillIfCommands) > 0 || conditions.Has(sm, v1alpha1.OwnerProtectedCondition)
}

func concerned() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(obj client.Object) bool {
		sm, ok := obj.(*v1alpha1.ScheduledMachine)
		return ok && concerns(sm)
	})
}

// changes filters for updates that change the value that read returns.
func changes[T comparable](read func(client.Object) T) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return read(e.ObjectOld) != read(e.ObjectNew) }}
}

type nodeSays struct {
	uid                         string
	said                        string
	machineID                   string
	leaving, requested, isReady bool
}

func nodeStateOf(obj client.Object) nodeSays {
	says := nodeSays{
		uid: string(obj.GetUID()), said: obj.GetAnnotations()[reclaimapi.StateAnnotation],
		leaving: !obj.GetDeletionTimestamp().IsZero(), requested: reclaimapi.Requested(obj.GetAnnotations()),
	}
	if node, ok := obj.(*corev1.Node); ok {
		says.isReady, says.machineID = nodeReady(node), node.Status.NodeInfo.MachineID
	}
	return says
}

type podShows struct {
	uid, node, trouble string
	// isRunning is the container's state, isReady the pod's condition.
	leaving, isRunning, isReady bool
}

func podStateOf(obj client.Object) podShows {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return podShows{}
	}
	return podShows{string(pod.UID), workload.NodeOf(pod), troubleOf(pod), !pod.DeletionTimestamp.IsZero(), running(pod), workload.Ready(pod)}
}
