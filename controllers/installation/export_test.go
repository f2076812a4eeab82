// SPDX-License-Identifier: Apache-2.0

package installation

import "sigs.k8s.io/controller-runtime/pkg/predicate"

// WithWatchFilter sets the watch filter, like SetupWithManager.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// Concerned filters for the ScheduledMachines that enqueue their Cluster, with or without the guard.
func Concerned(guard bool) predicate.Predicate { return concerned(guard) }
