// SPDX-License-Identifier: Apache-2.0

package topology

// WithWatchFilter sets the watch filter, like SetupWithManager.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// Owned filters for the ScheduledMachines that enqueue their Cluster.
var Owned = owned()
