// SPDX-License-Identifier: Apache-2.0

package orphan

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// name is the name of the controller in metrics and logs.
const name = "orphan"

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, opts controller.Options) error {
	_, err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine), builder.WithPredicates(machineChanges())).
		Watches(&v1alpha1.ScheduledMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofScheduledMachine), builder.WithPredicates(exists())).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(opts).
		Build(telemetry.Counted(name, r))
	if err != nil {
		return fmt.Errorf("building orphan controller: %w", err)
	}
	return metrics.Registry.Register(orphanMachines)
}

// ofMachine returns the request for the Cluster of a Machine.
func ofMachine(_ context.Context, obj client.Object) []ctrl.Request {
	m, ok := obj.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}}}
}

// ofScheduledMachine returns requests for the Cluster of a ScheduledMachine, and for the Cluster of the Machine
// that has its name. The two may differ.
func (r *Reconciler) ofScheduledMachine(ctx context.Context, obj client.Object) []ctrl.Request {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	requests := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: sm.Namespace, Name: sm.Spec.ClusterName}}}
	m := &clusterv1.Machine{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: children.NamesOf(sm.Name).Machine}, m); err != nil {
		return requests // Without a Machine there is no orphan.
	}
	return append(requests, ofMachine(ctx, m)...)
}

// machineChanges selects changes that may make a Machine an orphan or end that. Most updates change only the
// status.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*clusterv1.Machine)
		after, ok2 := e.ObjectNew.(*clusterv1.Machine)
		return !ok || !ok2 || before.UID != after.UID || children.MadeByUs(before) != children.MadeByUs(after) ||
			children.ParentOf(before) != children.ParentOf(after) || controllerOf(before) != controllerOf(after) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	}}
}

// controllerOf returns the UID of the controller of an object, empty if there is none.
func controllerOf(obj client.Object) types.UID {
	if ref := metav1.GetControllerOf(obj); ref != nil {
		return ref.UID
	}
	return ""
}

// exists selects creates and deletes of a ScheduledMachine, and updates to another UID.
func exists() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}
}
