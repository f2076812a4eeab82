// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

type noWatches struct{}

func (noWatches) nodes(context.Context, client.ObjectKey) error { return nil }

func (noWatches) installed(context.Context, client.ObjectKey, *unstructured.Unstructured) error {
	return nil
}

// WithWatchFilter sets the watch filter, like SetupWithManager.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// WithoutWatches disables the watches, for tests that call Reconcile.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.watches = noWatches{}
	return r
}

// Affected filters for the ScheduledMachines that enqueue their Cluster, with or without the guard.
func Concerned(guard bool) predicate.Predicate { return concerned(guard) }
