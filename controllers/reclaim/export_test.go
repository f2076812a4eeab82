// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Judge is judge, for tests.
var Judge = judge

type noNodes struct{}

func (noNodes) Start(context.Context, client.ObjectKey) error { return nil }

// WithoutWatches returns r for tests that call Reconcile themselves.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes = noNodes{}
	return r
}
