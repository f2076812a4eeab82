// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Begin is how the controller begins.
func (r *Reconciler) Begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	return r.begin(ctx, queue)
}

// Withdrawal is what runs until the manager ends.
func (r *Reconciler) Withdrawal() manager.Runnable { return withdrawal{r} }
