// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
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
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(wake.ClusterOf), builder.WithPredicates(changed, owned())).
		WithOptions(opts).
		Complete(telemetry.Counted("topology", r))
	if err != nil {
		return fmt.Errorf("building topology controller: %w", err)
	}
	return nil
}

// owned filters for ScheduledMachines that belong, or belonged before an update, to a topology.
func owned() predicate.Predicate {
	p := predicate.NewPredicateFuncs(isOwned)
	p.UpdateFunc = func(e event.UpdateEvent) bool { return isOwned(e.ObjectOld) || isOwned(e.ObjectNew) }
	return p
}
