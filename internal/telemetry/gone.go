// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// OnceGone has what was counted for an object be forgotten once the object is gone. It wakes
// nobody.
func OnceGone(forget func(client.ObjectKey)) handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		forget(client.ObjectKeyFromObject(e.Object))
	}}
}
