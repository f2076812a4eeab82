// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// SetupWithManager adds the controller to mgr. Machines have Cluster API's index by Node name. It uses
// controller-runtime's builder, because Cluster API's builder reconciles an object at most once a second.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "reclaim")
	mapper := mapper{wake.Mapper{Reader: r.Reader}}
	r.watchFilter = watchFilter
	opts.RateLimiter = r.setBackoffs()
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("reclaim").
		Watches(&v1alpha1.ScheduledMachine{}, wake.PrioritizeUrgent(&handler.EnqueueRequestForObject{}, hasOwnerRequest), builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter), scheduledMachineChanges(),
		)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(wake.OfChild)).
		// The change may make the host data of another Machine of the same host acceptable.
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapper.OfHost), builder.WithPredicates(wake.NodeOfMachine())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapper.OfCluster),
			builder.WithPredicates(predicates.ClusterPausedTransitions(mgr.GetScheme(), log))).
		Watches(&v1alpha1.ScheduledMachine{}, telemetry.StartClusterSeries(r.Reader, startClusterSeries),
			builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter))).
		Watches(&clusterv1.Cluster{}, telemetry.RemoveClusterSeries(removeClusterSeries)).
		WatchesRawSource(r.ClusterCache.GetClusterSource("reclaim", mapper.OfCluster)).
		WithOptions(opts).
		Build(telemetry.Counted("reclaim", r))
	if err != nil {
		return fmt.Errorf("building reclaim controller: %w", err)
	}
	r.nodes = workload.Watch{
		Name: "reclaim-nodes", Kind: &corev1.Node{}, Cache: r.ClusterCache, Controller: c, Map: mapper.ofNode,
		Predicate: nodeChanges(),
		Handler:   func(h handler.EventHandler) handler.EventHandler { return wake.PrioritizeUrgent(h, hasOwnerRequest) },
	}
	return registerMetrics()
}

// hasOwnerRequest reports whether the object, a ScheduledMachine or a Node, has an owner's request.
func hasOwnerRequest(obj client.Object) bool {
	if sm, ok := obj.(*v1alpha1.ScheduledMachine); ok {
		return sm.BeingReclaimed()
	}
	return reclaimapi.Requested(obj.GetAnnotations())
}

// scheduledMachineChanges filters out status updates. A label change counts: the watch label may be added after the
// owner's request.
func scheduledMachineChanges() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
}

// nodeChanges filters for Nodes with the request annotation, now or before the update.
func nodeChanges() predicate.Predicate {
	p := predicate.NewPredicateFuncs(marked)
	p.UpdateFunc = func(e event.UpdateEvent) bool { return marked(e.ObjectOld) || marked(e.ObjectNew) }
	return p
}

// marked reports whether a Node has the request annotation, whatever its value.
func marked(node client.Object) bool {
	_, is := node.GetAnnotations()[reclaimapi.RequestedAnnotation]
	return is
}

// mapper also maps a Node without a Machine to the ScheduledMachine whose served request it may carry.
type mapper struct{ wake.Mapper }

// ofNode maps a Node to its ScheduledMachine. It uses only data of the management cluster to find the Machine, not the
// Node's annotations. A Node whose Machine is gone may still carry a served request.
func (m mapper) ofNode(ctx context.Context, cluster client.ObjectKey, node client.Object) []ctrl.Request {
	if found := m.OfNode(ctx, cluster, node); len(found) > 0 {
		return found
	}
	return m.OfClusterIf(ctx, cluster, func(sm *v1alpha1.ScheduledMachine) bool {
		served, ok := sm.LastReclaim()
		return ok && served.Node == node.GetName()
	})
}
