// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
)

// configReconciler creates the bootstrap Secret of a PlaneConfig.
type configReconciler struct {
	client client.Client
	clock  clock.PassiveClock
}

// Reconcile implements reconcile.Reconciler.
func (r *configReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pc := &bootstrapv1.PlaneConfig{}
	if err := r.client.Get(ctx, req.NamespacedName, pc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, err := util.GetOwnerMachine(ctx, r.client, pc.ObjectMeta)
	if err != nil || machine == nil || !pc.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetClusterByName(ctx, r.client, pc.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading Cluster: %w", err)
	}
	if annotations.IsPaused(cluster, pc) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if wait := remaining(r.clock.Now(), pc.CreationTimestamp, pc.Spec.DelaySeconds); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := r.ensureSecret(ctx, pc, machine.Spec.ClusterName); err != nil {
		return ctrl.Result{}, fmt.Errorf("making bootstrap data: %w", err)
	}
	before := pc.DeepCopy()
	pc.Status.DataSecretName = pc.Name
	pc.Status.Initialization.DataSecretCreated = new(true)
	setReady(&pc.Status.Conditions, pc.Generation, true, "DataSecretCreated", "")
	if equality.Semantic.DeepEqual(before.Status, pc.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Status().Patch(ctx, pc, client.MergeFrom(before)))
}

func (r *configReconciler) ensureSecret(ctx context.Context, pc *bootstrapv1.PlaneConfig, cluster string) error {
	if pc.Status.DataSecretName != "" {
		return nil
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: pc.Namespace, Name: pc.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Type:       clusterv1.ClusterSecretType,
		StringData: map[string]string{"format": "plane", "value": "join"},
	}
	if err := controllerutil.SetControllerReference(pc, secret, r.client.Scheme()); err != nil {
		return err
	}
	if err := r.client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// remaining returns how much of a delay is left that began at since.
func remaining(now time.Time, since metav1.Time, seconds int32) time.Duration {
	if seconds == 0 {
		return 0
	}
	return since.Add(time.Duration(seconds) * time.Second).Sub(now)
}
