// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// SetupWithManager adds the controller to mgr. It uses controller-runtime's builder, like the other controllers.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "topology")
	r.watchFilter = watchFilter
	opts.RateLimiter = wake.Backoff()
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("topology").
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter), changed)).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(ofScheduledMachine), builder.WithPredicates(changed, owned())).
		WithOptions(opts).
		Complete(telemetry.Counted("topology", r))
	if err != nil {
		return fmt.Errorf("building topology controller: %w", err)
	}
	return nil
}

func ofScheduledMachine(_ context.Context, obj client.Object) []ctrl.Request {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: workload.ClusterKey(sm)}}
}

// owned filters for ScheduledMachines that belong, or belonged before an update, to a topology.
func owned() predicate.Predicate {
	concerns := func(obj client.Object) bool {
		sm, ok := obj.(*v1alpha1.ScheduledMachine)
		return ok && isOwned(sm)
	}
	p := predicate.NewPredicateFuncs(concerns)
	p.UpdateFunc = func(e event.UpdateEvent) bool { return concerns(e.ObjectOld) || concerns(e.ObjectNew) }
	return p
}
