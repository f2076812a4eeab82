// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// The names of the controllers in metrics and logs.
const (
	name       = "departure"
	hookName   = "machinehook"
	orphanName = "orphan"
)

// SetupWithManager adds the planner to mgr, and registers the metrics of this package.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	opts.RateLimiter = wake.Backoff()
	specAndMetadata := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	_, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WatchesRawSource(r.clockChanges()).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine), builder.WithPredicates(machineChanges())).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(wake.ClusterOf), specAndMetadata).
		Watches(&v1alpha1.ScheduledMachine{}, telemetry.StartClusterSeries(r.Reader, startClusterSeries),
			builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), mgr.GetLogger().WithValues("controller", name), r.WatchFilter))).
		Watches(&clusterv1.Cluster{}, telemetry.RemoveClusterSeries(removeClusterSeries)).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, specAndMetadata).
		WithOptions(opts).
		Build(telemetry.Counted(name, r))
	if err != nil {
		return fmt.Errorf("building departure controller: %w", err)
	}
	return r.registerMetrics()
}

// SetupWithManager adds the controller of the deletion hooks to mgr. It creates the HookCaller.
func (r *HookReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	log := mgr.GetLogger().WithValues("controller", hookName)
	opts.RateLimiter = wake.DepartureBackoff()
	r.HookCaller = leaving.New(r.Clock)
	b := ctrl.NewControllerManagedBy(mgr)
	for _, s := range r.Woken {
		b = b.WatchesRawSource(s)
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := b.
		Named(hookName).
		For(&clusterv1.Machine{}, builder.WithPredicates(r.hookedMachines())).
		WatchesRawSource(r.HookCaller.Woken()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster),
			builder.WithPredicates(predicate.Or(wake.ClusterLeaves(), predicates.ClusterPausedTransitions(mgr.GetScheme(), log), wake.Relabelled()))).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofScheduledMachine), builder.WithPredicates(predicate.Or(deletesAndUnpauses(), wake.Relabelled()))).
		Watches(&v1alpha1.MachineDeletionHook{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(r.extensionChanges())).
		WatchesMetadata(namespace, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(wake.Relabelled())).
		WithOptions(opts).
		Complete(telemetry.Counted(hookName, r))
	if err != nil {
		return fmt.Errorf("building machinehook controller: %w", err)
	}
	return nil
}

// SetupWithManager adds the controller that counts orphans to mgr.
func (r *OrphanReconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	_, err := ctrl.NewControllerManagedBy(mgr).
		Named(orphanName).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine), builder.WithPredicates(machineChanges())).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofScheduledMachine), builder.WithPredicates(exists())).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(opts).
		Build(telemetry.Counted(orphanName, r))
	if err != nil {
		return fmt.Errorf("building orphan controller: %w", err)
	}
	return nil
}

// clockChanges is the source that enqueues every Cluster when the trust in the clock changes.
func (r *Reconciler) clockChanges() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.APIClock.OnChange(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			for key := range r.fleet {
				queue.Add(ctrl.Request{NamespacedName: key})
			}
		})
		return nil
	})
}

// ofMachine returns the request for the Cluster of a Machine that 5-Spot made.
func ofMachine(_ context.Context, obj client.Object) []ctrl.Request {
	m, ok := obj.(*clusterv1.Machine)
	if !ok || !children.MadeByUs(m) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}}}
}

// machineChanges selects changes of a Machine on which a plan or the count of orphans depends. Most updates change only its status.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.Machine)
		after, ok2 := e.ObjectNew.(*clusterv1.Machine)
		return !ok || !ok2 || before.UID != after.UID || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			before.Status.NodeRef.IsDefined() != after.Status.NodeRef.IsDefined() ||
			!maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	}}
}

// hookedMachines selects Machines that are being deleted and that this controller serves. It removes the in-memory
// state of deleted Machines.
func (r *HookReconciler) hookedMachines() predicate.Predicate {
	forget := func(machine client.Object) {
		r.notified.Delete(machine.GetUID())
		for reason := range v1alpha1.WaitAdvice() {
			r.misses.Delete(miss{machine.GetUID(), reason})
		}
		r.cancelCalls(machine.GetUID())
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isHooked(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				forget(e.ObjectOld)
			}
			return isHooked(e.ObjectNew)
		},
		DeleteFunc: func(e event.DeleteEvent) bool { forget(e.Object); return false },
	}
}

// extensionChanges selects creates, spec changes and deletes of MachineDeletionHooks. A delete cancels the open
// calls of the extension.
func (r *HookReconciler) extensionChanges() predicate.Predicate {
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

// deletesAndUnpauses selects deletes, and updates that remove the paused annotation.
func deletesAndUnpauses() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return annotations.HasPaused(e.ObjectOld) && !annotations.HasPaused(e.ObjectNew)
		},
	}
}

// isHooked reports whether a Machine is being deleted and either has a hook of 5-Spot or was made for a
// ScheduledMachine.
func isHooked(obj client.Object) bool {
	_, drain := obj.GetAnnotations()[v1alpha1.PreDrainHookAnnotation]
	_, terminate := obj.GetAnnotations()[v1alpha1.PreTerminateHookAnnotation]
	return !obj.GetDeletionTimestamp().IsZero() && (drain || terminate || children.ParentOf(obj) != "")
}

// ofCluster returns requests for the Machines of a Cluster that are being deleted.
func (r *HookReconciler) ofCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.list(ctx, every, client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
}

// ofScheduledMachine returns requests for the Machines of a ScheduledMachine that are being deleted.
func (r *HookReconciler) ofScheduledMachine(ctx context.Context, sm client.Object) []ctrl.Request {
	return r.list(ctx, func(m *clusterv1.Machine) bool { return children.ParentOf(m) == sm.GetName() }, client.InNamespace(sm.GetNamespace()))
}

// ofNamespace returns requests for the Machines of a Namespace that are being deleted.
func (r *HookReconciler) ofNamespace(ctx context.Context, namespace client.Object) []ctrl.Request {
	return r.list(ctx, every, client.InNamespace(namespace.GetName()))
}

// all returns requests for all Machines that are being deleted.
func (r *HookReconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.list(ctx, every)
}

func every(*clusterv1.Machine) bool { return true }

func (r *HookReconciler) list(ctx context.Context, wanted func(*clusterv1.Machine) bool, opts ...client.ListOption) []ctrl.Request {
	machines := &clusterv1.MachineList{}
	if err := r.Reader.List(ctx, machines, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Machines")
		return nil
	}
	return wake.Requests(machines.Items, func(m *clusterv1.Machine) bool { return isHooked(m) && wanted(m) })
}

// ofScheduledMachine returns requests for the Cluster of a ScheduledMachine, and for the Cluster of the Machine
// that has its name. The two may differ.
func (r *OrphanReconciler) ofScheduledMachine(ctx context.Context, sm client.Object) []ctrl.Request {
	requests, m := wake.ClusterOf(ctx, sm), &clusterv1.Machine{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: sm.GetNamespace(), Name: children.NamesOf(sm.GetName()).Machine}, m); err != nil {
		return requests // Without a Machine there is no orphan.
	}
	return append(requests, ofMachine(ctx, m)...)
}

// exists selects creates and deletes of a ScheduledMachine, and updates to another UID.
func exists() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
}
