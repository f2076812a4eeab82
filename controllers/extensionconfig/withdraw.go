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

// farewell is how long a manager that ends may take to withdraw. Its pod has ten
// seconds for everything.
const farewell = 5 * time.Second

// A withdrawal withdraws the registration when the manager goes for good, and keeps it
// through a restart, a rollout and a change of leader.
type withdrawal struct{ *Reconciler }

// NeedLeaderElection has only the leader withdraw, while it still leads and its
// webhook server still serves.
func (withdrawal) NeedLeaderElection() bool { return true }

// Start waits for the manager's end.
func (w withdrawal) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := w.Leave(ctx); err != nil {
		// Nobody is there to try again; the owner of the ExtensionConfig takes it along.
		ctrl.LoggerFrom(ctx).Error(err, "Withdrawing runtime extension")
	}
	return nil
}

// Leave withdraws if no manager follows.
func (r *Reconciler) Leave(ctx context.Context) error {
	if r.Options.PodNamespace == "" {
		return nil // Nobody knows who follows a process of its own.
	}
	deployment := &appsv1.Deployment{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.PodNamespace, Name: deploymentName}, deployment); {
	case apierrors.IsNotFound(err):
		deployment = nil
	case err != nil:
		return fmt.Errorf("reading our Deployment: %w", err)
	}
	if !goesForGood(deployment) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	existing, err := r.existing(ctx)
	if err != nil || presenceOf(existing, r.Options) != ours {
		return err
	}
	return actuate.IgnoreSuppressed(r.Actuate.Delete(ctx, existing))
}
