// SPDX-License-Identifier: Apache-2.0

package topology

// WithWatchFilter returns a reconciler as SetupWithManager makes it.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}

// Owned is which ScheduledMachines wake their Cluster.
var Owned = owned()
