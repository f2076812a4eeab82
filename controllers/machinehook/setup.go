// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
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

// SetupWithManager adds the controller to mgr. It uses controller-runtime's own
// builder, as its siblings do.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "machinehook")
	r.watchFilter = watchFilter
	opts.RateLimiter = wake.Backoff()
	leaves := predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return leaving(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return leaving(e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { r.told.Delete(e.Object.GetUID()); return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("machinehook").
		For(&clusterv1.Machine{}, builder.WithPredicates(leaves)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster),
			builder.WithPredicates(predicate.Or(clusterLeaves(), predicates.ClusterPausedTransitions(mgr.GetScheme(), log), predicate.LabelChangedPredicate{}))).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(ofScheduledMachine), builder.WithPredicates(becomesOurs(watchFilter))).
		Watches(&v1alpha1.MachineDeletionHook{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(opts).
		Complete(telemetry.Counted("machinehook", r))
	if err != nil {
		return fmt.Errorf("building machinehook controller: %w", err)
	}
	return nil
}

// leaving reports whether a Machine is ours to let go.
func leaving(obj client.Object) bool {
	_, drain := obj.GetAnnotations()[v1alpha1.PreDrainHookAnnotation]
	_, terminate := obj.GetAnnotations()[v1alpha1.PreTerminateHookAnnotation]
	return !obj.GetDeletionTimestamp().IsZero() && (drain || terminate || children.ParentOf(obj) != "")
}

// clusterLeaves lets through the beginning of a Cluster's deletion, after which
// nobody waits, and its end.
func clusterLeaves() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

// becomesOurs lets a ScheduledMachine through that the manager with this filter begins
// to serve: its Machine may be leaving already, and nobody has looked at it.
func becomesOurs(filter string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return filter != "" && !labels.HasWatchLabel(e.ObjectOld, filter) && labels.HasWatchLabel(e.ObjectNew, filter)
		},
	}
}

// ofScheduledMachine returns the Machine of a ScheduledMachine.
func ofScheduledMachine(_ context.Context, sm client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: sm.GetNamespace(), Name: children.NamesOf(sm.GetName()).Machine}}}
}

// ofCluster returns the Machines of a Cluster that are being deleted.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.list(ctx, client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
}

// all returns all Machines that are being deleted.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request { return r.list(ctx) }

func (r *Reconciler) list(ctx context.Context, opts ...client.ListOption) []ctrl.Request {
	machines := &clusterv1.MachineList{}
	if err := r.Reader.List(ctx, machines, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Machines")
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		if leaving(&machines.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
		}
	}
	return requests
}
