// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"time"

	"sigs.k8s.io/cluster-api/util/labels"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// mayStart reports whether a Machine may start to leave or has started. A Machine that another client deletes waits
// until the planner admits it, also if its ScheduledMachine does not exist any more. Owners' requests, kill switches and
// the deletion of the Cluster are exempt. The planner plans only Machines that 5-Spot made and this manager serves.
func (r *Reconciler) mayStart(s *scope, now time.Time) bool {
	return !r.planned(s) || children.Exempt(s.scheduled, s.cluster) || !children.Held(s.machine, now)
}

// planned reports whether the planner plans the departure of this Machine: 5-Spot made it, and this manager
// serves it.
func (r *Reconciler) planned(s *scope) bool {
	if s.orphaned() {
		return true
	}
	return s.scheduled != nil && children.MadeByUs(s.machine) && (r.watchFilter == "" || labels.HasWatchLabel(s.scheduled, r.watchFilter))
}

// clusterGoes reports whether the Machine's Cluster is being deleted. A missing Cluster does not count: it may
// have been lost.
func (s *scope) clusterGoes() bool {
	return s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero()
}
