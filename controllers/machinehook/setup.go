// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// SetupWithManager adds the controller to mgr. It creates a HookCaller if none is set.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, watchFilter string, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", "machinehook")
	r.watchFilter = watchFilter
	if err := metrics.Registry.Register(deadlinesMissed); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	opts.RateLimiter = wake.Backoff()
	if r.HookCaller == nil {
		r.HookCaller = leaving.New(r.Clock)
	}
	b := ctrl.NewControllerManagedBy(mgr)
	for _, s := range r.Woken {
		b = b.WatchesRawSource(s)
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := b.
		Named("machinehook").
		For(&clusterv1.Machine{}, builder.WithPredicates(r.leaves())).
		WatchesRawSource(r.HookCaller.Woken()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster),
			builder.WithPredicates(predicate.Or(wake.ClusterLeaves(), predicates.ClusterPausedTransitions(mgr.GetScheme(), log), wake.Relabelled()))).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofScheduledMachine), builder.WithPredicates(predicate.Or(gone(), unpaused(), wake.Relabelled()))).
		Watches(&v1alpha1.MachineDeletionHook{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(r.extensionChanges())).
		Watches(&v1alpha1.ScheduledMachine{}, telemetry.StartClusterSeries(r.Reader, startClusterSeries),
			builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, watchFilter))).
		Watches(&clusterv1.Cluster{}, telemetry.RemoveClusterSeries(removeClusterSeries)).
		WatchesMetadata(namespace, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(wake.Relabelled())).
		WithOptions(opts).
		Complete(telemetry.Counted("machinehook", r))
	if err != nil {
		return fmt.Errorf("building machinehook controller: %w", err)
	}
	return nil
}

// leaves selects Machines that are being deleted and that this controller serves. It removes the in-memory
// state of deleted Machines.
func (r *Reconciler) leaves() predicate.Predicate {
	forget := func(machine client.Object) {
		r.notified.Delete(machine.GetUID())
		r.cancelCalls(machine.GetUID())
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return leaves(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				forget(e.ObjectOld)
			}
			return leaves(e.ObjectNew)
		},
		DeleteFunc:  func(e event.DeleteEvent) bool { forget(e.Object); return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// extensionChanges selects creates, spec changes and deletes of MachineDeletionHooks. A delete cancels the open
// calls of the extension.
func (r *Reconciler) extensionChanges() predicate.Predicate {
	forget := func(hook client.Object) {
		r.HookCaller.ForgetStep(hook.GetUID())
		r.Extensions.Forget(hook.GetUID())
	}
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				forget(e.ObjectOld)
				return true
			}
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
		},
		DeleteFunc: func(e event.DeleteEvent) bool { forget(e.Object); return true },
	}
}

// gone selects deletes.
func gone() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// unpaused selects updates that remove the paused annotation.
func unpaused() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return annotations.HasPaused(e.ObjectOld) && !annotations.HasPaused(e.ObjectNew)
		},
	}
}

// leaves reports whether a Machine is being deleted and either has a hook of 5-Spot or was made for a
// ScheduledMachine.
func leaves(obj client.Object) bool {
	_, drain := obj.GetAnnotations()[v1alpha1.PreDrainHookAnnotation]
	_, terminate := obj.GetAnnotations()[v1alpha1.PreTerminateHookAnnotation]
	return !obj.GetDeletionTimestamp().IsZero() && (drain || terminate || children.ParentOf(obj) != "")
}

// ofCluster returns requests for the Machines of a Cluster that are being deleted.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.list(ctx, every, client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
}

// ofScheduledMachine returns requests for the Machines of a ScheduledMachine that are being deleted.
func (r *Reconciler) ofScheduledMachine(ctx context.Context, sm client.Object) []ctrl.Request {
	return r.list(ctx, func(m *clusterv1.Machine) bool { return children.ParentOf(m) == sm.GetName() }, client.InNamespace(sm.GetNamespace()))
}

// ofNamespace returns requests for the Machines of a Namespace that are being deleted.
func (r *Reconciler) ofNamespace(ctx context.Context, namespace client.Object) []ctrl.Request {
	return r.list(ctx, every, client.InNamespace(namespace.GetName()))
}

// all returns requests for all Machines that are being deleted.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.list(ctx, every)
}

func every(*clusterv1.Machine) bool { return true }

func (r *Reconciler) list(ctx context.Context, wanted func(*clusterv1.Machine) bool, opts ...client.ListOption) []ctrl.Request {
	machines := &clusterv1.MachineList{}
	if err := r.Reader.List(ctx, machines, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Machines")
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		if m := &machines.Items[i]; leaves(m) && wanted(m) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return requests
}
