// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// name is the controller's name in metrics and logs.
const name = "scheduledmachine"

// AddIndexes adds the cache indexes that this controller and others in this module use.
func AddIndexes(ctx context.Context, mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	return errors.Join(
		indexer.IndexField(ctx, &v1alpha1.ScheduledMachine{}, wake.ClusterIndex, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ScheduledMachine).Spec.ClusterName}
		}),
		indexer.IndexField(ctx, &v1alpha1.ScheduledMachine{}, HostIndex, HostKeys),
		indexer.IndexField(ctx, &v1alpha1.ScheduledMachine{}, wake.NodeIndex, func(o client.Object) []string {
			if ref := o.(*v1alpha1.ScheduledMachine).Status.NodeRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}),
	)
}

// SetupWithManager adds the controller to mgr. watchFilter is the value of Cluster API's watch label, empty for all
// objects.
//
// The builder is controller-runtime's. Cluster API's builder reconciles an object at most once a second,
// which would delay an owner's request.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", name)
	r.watchFilter = watchFilter
	r.Backoff = wake.Backoff()
	wake.PrioritizeUrgentRequests(&opts, r.killed)
	mapper := wake.Mapper{Reader: r.Reader}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&v1alpha1.ScheduledMachine{}, builder.WithPredicates(
			predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter),
			// Status writes of this controller do not trigger it.
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, resync()),
		)).
		// ScheduledMachines of other managers count, so there is no filter.
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofHost), builder.WithPredicates(hostChanges())).
		Watches(&v1alpha1.ReclaimedMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofReclaimed)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(wake.OfChild)).
		// The change may make the host data of another Machine of the same host acceptable.
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapper.OfHost), builder.WithPredicates(wake.NodeOfMachine())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapper.OfCluster), builder.WithPredicates(clusterChanges())).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(r.ofKind),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(r.ReclaimTracker.Stalls()).
		WatchesRawSource(r.ClusterCache.GetClusterSource(name, mapper.OfCluster, clustercache.WatchForProbeFailure(failedProbes*probeInterval))).
		WithOptions(opts).
		Build(telemetry.Counted(name, r))
	if err != nil {
		return fmt.Errorf("building scheduledmachine controller: %w", err)
	}
	tracker := &external.ObjectTracker{Controller: c, Cache: mgr.GetCache(), Scheme: mgr.GetScheme(), PredicateLogger: &log}
	r.Watch = func(child client.Object) error {
		return tracker.Watch(mgr.GetLogger(), child, handler.EnqueueRequestsFromMapFunc(wake.OfChild), predicates.ResourceIsChanged(mgr.GetScheme(), mgr.GetLogger()))
	}
	return registerMetrics(fleet{reader: mgr.GetCache(), clock: r.Clock, watchFilter: watchFilter, elected: mgr.Elected()})
}

// killed reports whether the kill switch of the requested ScheduledMachine is on. A request for it waits behind no
// other one: while writes hang, a thousand ordinary departures hold the workers for minutes.
func (r *Reconciler) killed(req ctrl.Request) bool {
	sm := &v1alpha1.ScheduledMachine{}
	return r.Reader.Get(context.Background(), req.NamespacedName, sm, client.UnsafeDisableDeepCopy) == nil && sm.Spec.KillSwitch
}

// clusterChanges filters for changes of a Cluster that a ScheduledMachine depends on: the spec with paused, the
// deletion, and metadata. It excludes the status, which changes with each Machine that joins or leaves and would
// enqueue all ScheduledMachines.
func clusterChanges() predicate.Predicate {
	another := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
	return predicate.Or(another, predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// ofKind maps a CustomResourceDefinition to the ScheduledMachines that use its kind. They may wait for the kind to be
// installed or served. Running ones need a watch in a served version.
func (r *Reconciler) ofKind(ctx context.Context, crd client.Object) []ctrl.Request {
	definition := crd.(*apiextensionsv1.CustomResourceDefinition)
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of kind", "kind", definition.Spec.Names.Kind)
		return nil
	}
	return wake.Requests(list.Items, func(sm *v1alpha1.ScheduledMachine) bool {
		return children.MayBeOf(sm, definition.Spec.Group, definition.Spec.Names.Kind)
	})
}

// resync filters for the updates that the cache delivers every --sync-period. They correct timers after the wall clock
// was set or the host was suspended: timers count only running time. It does not filter other events.
func resync() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	}}
}
