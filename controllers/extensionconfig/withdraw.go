// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// withdrawTimeout bounds the removal of the registration when the manager stops. Its pod has ten seconds in total.
const withdrawTimeout = 5 * time.Second

// withdrawAtEnd waits until the manager stops, and removes the registration when the manager is uninstalled or scaled
// to zero. It does not during a restart, a rollout, or a change of the leader. Only the leader runs it: it removes the
// registration while it still leads, and while its webhook server still serves.
func (r *Reconciler) withdrawAtEnd(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	if err := r.WithdrawIfFinal(ctx); err != nil {
		// There is no retry. Garbage collection deletes the ExtensionConfig with its owner.
		ctrl.LoggerFrom(ctx).Error(err, "Withdrawing runtime extension")
	}
	return nil
}

// WithdrawIfFinal removes the registration if no new manager will start.
func (r *Reconciler) WithdrawIfFinal(ctx context.Context) error {
	if r.Options.PodNamespace == "" {
		return nil // Outside a cluster, it is unknown whether another process follows.
	}
	deployment := &appsv1.Deployment{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.PodNamespace, Name: deploymentName}, deployment); {
	case apierrors.IsNotFound(err):
		deployment = nil
	case err != nil:
		return fmt.Errorf("reading our Deployment: %w", err)
	}
	if !stopsForGood(deployment) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdrawn = true
	existing, err := r.existing(ctx)
	if err != nil || !ours(existing, r.Options) {
		return err
	}
	return actuate.IgnoreSuppressed(r.Actuate.Delete(ctx, existing))
}

// stopsForGood reports whether no new manager will start: the Deployment is missing, being deleted, or has zero
// replicas.
func stopsForGood(d *appsv1.Deployment) bool {
	return d == nil || !d.DeletionTimestamp.IsZero() || d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}
