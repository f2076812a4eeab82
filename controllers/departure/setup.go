// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// name is the name of the controller in metrics and logs.
const name = "departure"

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	opts.RateLimiter = wake.Backoff()
	specAndMetadata := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	_, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WatchesRawSource(r.clockChanges()).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine), builder.WithPredicates(machineChanges())).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(ofScheduledMachine), specAndMetadata).
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

// ofScheduledMachine returns the request for the Cluster of a ScheduledMachine.
func ofScheduledMachine(_ context.Context, obj client.Object) []ctrl.Request {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: workload.ClusterKey(sm)}}
}

// machineChanges selects changes of a Machine that a plan depends on. Most updates change only its status.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.Machine)
		after, ok2 := e.ObjectNew.(*clusterv1.Machine)
		return !ok || !ok2 || before.UID != after.UID || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			before.Status.NodeRef.IsDefined() != after.Status.NodeRef.IsDefined() ||
			!maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels) ||
			!slices.EqualFunc(before.OwnerReferences, after.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
	}}
}
