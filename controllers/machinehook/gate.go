// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// mayStart reports whether a Machine may start to leave or has started. A Machine that another client deletes
// waits until the planner admits it, also if its ScheduledMachine does not exist any more. Owners' requests,
// kill switches and the deletion of the Cluster are exempt. The planner plans only Machines that 5-Spot made
// and this manager serves.
func (r *Reconciler) mayStart(s *scope, f facts) bool {
	now := r.Clock.Now()
	if !r.planned(s) || f.urgent() || s.clusterGoes() || !children.Held(s.machine, now) {
		return true
	}
	key := s.rosterName()
	if !s.orphaned() {
		r.Roster.Report(key, roster.HeldEntry(s.scheduled, s.machine, now), now)
	}
	v := r.Roster.RequestGrant(key, s.machine.UID, now)
	s.cycle = v.Cycle
	return v.Granted
}

// finishAttempt records in the Roster that the write which mayStart admitted has returned, with or without an error.
func (r *Reconciler) finishAttempt(s *scope) {
	if r.planned(s) {
		r.Roster.FinishAttempt(s.rosterName(), s.machine.UID, r.Clock.Now())
	}
}

// reportOrphan records an orphan in the Roster, because no ScheduledMachine reconciler does. It removes the orphan
// entry of a Machine that has a ScheduledMachine again.
func (r *Reconciler) reportOrphan(s *scope) {
	now, own := r.Clock.Now(), roster.OrphanName(client.ObjectKeyFromObject(s.machine))
	if s.orphaned() {
		r.Roster.Report(own, roster.OrphanEntry(s.machine, s.killed(), now), now)
		return
	}
	r.Roster.Forget(own, now)
}

// killed reports whether the kill switch is on.
func (s *scope) killed() bool { return s.scheduled != nil && s.scheduled.Spec.KillSwitch }

// clusterGoes reports whether the Machine's Cluster is being deleted. A missing Cluster does not count: it may
// have been lost.
func (s *scope) clusterGoes() bool {
	return s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero()
}

// planned reports whether the planner plans the departure of this Machine: 5-Spot made it, and this manager
// serves it.
func (r *Reconciler) planned(s *scope) bool {
	if s.orphaned() {
		return true
	}
	return s.scheduled != nil && children.MadeByUs(s.machine) && (r.watchFilter == "" || labels.HasWatchLabel(s.scheduled, r.watchFilter))
}

// ofPlan returns the request for the Machine of a Roster name.
func ofPlan(name types.NamespacedName) ctrl.Request {
	if machine, orphan := roster.ParseOrphanName(name); orphan {
		return ctrl.Request{NamespacedName: machine}
	}
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: name.Namespace, Name: children.NamesOf(name.Name).Machine}}
}
