// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/remote"
)

// readyCondition is the one condition of all kinds.
const readyCondition = "Ready"

// Options are the dependencies of the reconcilers.
type Options struct {
	// Backends provide Nodes, by their name in PlaneMachines.
	Backends map[infrav1.Backend]Backend
	// Kubeconfigs connect to the workload clusters.
	Kubeconfigs *remote.Kubeconfigs
	// Concurrency is how many objects of a kind are reconciled in parallel.
	Concurrency int
}

// SetupWithManager adds all reconcilers.
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	c := mgr.GetClient()
	opts := controller.Options{MaxConcurrentReconciles: o.Concurrency}
	machines := handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("PlaneMachine")))
	configs := handler.EnqueueRequestsFromMapFunc(machineToConfig)
	for name, err := range map[string]error{
		"PlaneCluster": ctrl.NewControllerManagedBy(mgr).For(&infrav1.PlaneCluster{}).WithOptions(opts).
			Complete(&clusterReconciler{client: c}),
		"PlaneControlPlane": ctrl.NewControllerManagedBy(mgr).For(&controlplanev1.PlaneControlPlane{}).WithOptions(opts).
			Complete(&controlPlaneReconciler{client: c, kubeconfigs: o.Kubeconfigs}),
		"PlaneConfig": ctrl.NewControllerManagedBy(mgr).For(&bootstrapv1.PlaneConfig{}).WithOptions(opts).
			Watches(&clusterv1.Machine{}, configs).Complete(&configReconciler{client: c, clock: clock.RealClock{}}),
		"PlaneMachine": ctrl.NewControllerManagedBy(mgr).For(&infrav1.PlaneMachine{}).WithOptions(opts).
			Watches(&clusterv1.Machine{}, machines).Complete(&machineReconciler{client: c, clock: clock.RealClock{}, backends: o.Backends}),
	} {
		if err != nil {
			return fmt.Errorf("adding reconciler of %s: %w", name, err)
		}
	}
	return nil
}

// machineToConfig returns the PlaneConfig of a Machine.
func machineToConfig(_ context.Context, obj client.Object) []ctrl.Request {
	m, ok := obj.(*clusterv1.Machine)
	if !ok || m.Spec.Bootstrap.ConfigRef.Kind != "PlaneConfig" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Bootstrap.ConfigRef.Name}}}
}

// setReady writes the Ready condition into conditions.
func setReady(conditions *[]metav1.Condition, generation int64, ready bool, reason, message string) {
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: readyCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}
