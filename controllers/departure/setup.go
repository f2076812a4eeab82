// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// name is the name of the controller in metrics and logs.
const name = "departure"

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	r.APIClock.OnChange(r.Roster.Wake)
	_, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WatchesRawSource(r.Roster.Clusters()).
		Watches(&v1alpha1.ScheduledMachine{}, telemetry.StartClusterSeries(r.Reader, startClusterSeries),
			builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), mgr.GetLogger().WithValues("controller", name), r.WatchFilter))).
		Watches(&clusterv1.Cluster{}, telemetry.RemoveClusterSeries(removeClusterSeries)).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(holdChanges())).
		WithOptions(opts).
		Build(telemetry.Counted(name, r))
	if err != nil {
		return fmt.Errorf("building departure controller: %w", err)
	}
	return r.registerMetrics()
}
