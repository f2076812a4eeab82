// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/remote"
)

// clusterReconciler reports a PlaneCluster as provisioned as soon as it has an endpoint. The creator of the object has
// started the control plane.
type clusterReconciler struct{ client client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *clusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pc := &infrav1.PlaneCluster{}
	if err := r.client.Get(ctx, req.NamespacedName, pc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := pc.DeepCopy()
	has := pc.Spec.ControlPlaneEndpoint.Host != ""
	pc.Status.Initialization.Provisioned = &has
	if has {
		setReady(&pc.Status.Conditions, pc.Generation, true, "Provisioned", "")
	} else {
		setReady(&pc.Status.Conditions, pc.Generation, false, "WaitingForEndpoint", "spec.controlPlaneEndpoint is not set")
	}
	if equality.Semantic.DeepEqual(before.Status, pc.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Status().Patch(ctx, pc, client.MergeFrom(before)))
}

// controlPlaneReconciler reports a PlaneControlPlane as initialized once its API server answers through the Cluster's
// kubeconfig Secret.
type controlPlaneReconciler struct {
	client      client.Client
	kubeconfigs *remote.Kubeconfigs
}

// Reconcile implements reconcile.Reconciler.
func (r *controlPlaneReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cp := &controlplanev1.PlaneControlPlane{}
	if err := r.client.Get(ctx, req.NamespacedName, cp); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetOwnerCluster(ctx, r.client, cp.ObjectMeta)
	if err != nil || cluster == nil || !cp.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := cp.DeepCopy()
	version, err := r.version(ctx, client.ObjectKeyFromObject(cluster))
	cp.Status.ExternalManagedControlPlane = new(true)
	cp.Status.Version = version
	result := ctrl.Result{}
	if err == nil {
		cp.Status.Initialization.ControlPlaneInitialized = new(true)
		setReady(&cp.Status.Conditions, cp.Generation, true, "Initialized", "")
	} else {
		setReady(&cp.Status.Conditions, cp.Generation, false, "WaitingForAPIServer", err.Error())
		result.RequeueAfter = time.Second
	}
	if equality.Semantic.DeepEqual(before.Status, cp.Status) {
		return result, nil
	}
	return result, client.IgnoreNotFound(r.client.Status().Patch(ctx, cp, client.MergeFrom(before)))
}

// version reads the version of the API server. It reloads a kubeconfig that does not work.
func (r *controlPlaneReconciler) version(ctx context.Context, cluster client.ObjectKey) (string, error) {
	cfg, err := r.kubeconfigs.Config(ctx, cluster)
	if err != nil {
		return "", err
	}
	dc, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", err
	}
	info, err := dc.ServerVersion()
	if err != nil {
		r.kubeconfigs.Forget(cluster)
		return "", err
	}
	return info.GitVersion, nil
}
