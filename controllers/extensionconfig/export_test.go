// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Begin is the source that enqueues the first reconcile.
func (r *Reconciler) Begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	return r.begin(ctx, queue)
}

// Withdrawal is the runnable that runs until the manager stops.
func (r *Reconciler) Withdrawal() manager.Runnable { return manager.RunnableFunc(r.withdrawAtEnd) }
