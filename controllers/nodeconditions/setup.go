// SPDX-License-Identifier: Apache-2.0

package nodeconditions

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// SetupWithManager adds the controller to mgr. clusterIndex is the index of ScheduledMachines by the name of their
// Cluster. Machines have Cluster API's index by Node name.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter, clusterIndex string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "nodeconditions")
	mapper := wake.Mapper{Reader: r.Reader, ClusterIndex: clusterIndex}
	r.watchFilter = watchFilter
	opts.RateLimiter = wake.Backoff()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("nodeconditions").
		For(&v1alpha1.ScheduledMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter),
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapper.OfHost), builder.WithPredicates(predicate.Or(wake.NodeOfMachine(), machineChanges()))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapper.OfCluster),
			builder.WithPredicates(predicates.ClusterPausedTransitions(mgr.GetScheme(), log))).
		WatchesRawSource(r.ClusterCache.GetClusterSource("nodeconditions", mapper.OfCluster, clustercache.WatchForProbeFailure(workload.UnreachableAfter))).
		WithOptions(opts).
		Build(telemetry.Counted("nodeconditions", r))
	if err != nil {
		return fmt.Errorf("building nodeconditions controller: %w", err)
	}
	r.nodes = workload.Watch{
		Name: nodesWatch, Kind: &corev1.Node{}, Cache: r.ClusterCache, Controller: c, Map: mapper.OfNode, Predicate: wake.Changes(matters),
	}
	return nil
}

// machineChanges filters for progress of a departure: the departure record and the drain.
func machineChanges() predicate.Predicate {
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

// matters returns the parts of a Node that a decision depends on.
func matters(o client.Object) any {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o
	}
	return []any{node.UID, conditionsOf(node)}
}
