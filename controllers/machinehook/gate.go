// SPDX-License-Identifier: Apache-2.0

package machinehook

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// mayStart reports whether a Machine may start to leave, or has, and when to ask again: somebody
// else deletes it, one of many perhaps, and it waits for its turn as those do that the schedule
// takes away. One whose kill switch is on waits only if it is one of many such. An owner waits for
// nobody, nor does a Cluster that goes. Machines that are not of a ScheduledMachine are not
// planned, nor is what its reconciler here does not serve: it tells of nobody else.
func (r *Reconciler) mayStart(s *scope, f facts) (may bool, again time.Time) {
	now := r.Clock.Now()
	if !r.planned(s) || f.Trigger == hooksv1.TriggerEmergencyReclaim || s.clusterGoes() || !children.Held(s.machine, now) {
		return true, time.Time{}
	}
	key := client.ObjectKeyFromObject(s.scheduled)
	r.Roster.Tell(key, roster.Held(s.scheduled, s.machine, now), now)
	if s.scheduled.Spec.KillSwitch {
		v := r.Roster.Kill(key, s.machine.UID, now)
		return v.Granted, v.Until
	}
	v := r.Roster.Begin(key, s.machine.UID, now)
	s.cycle = v.Cycle
	return v.Granted, time.Time{}
}

// tried tells that what mayStart let through has been answered.
func (r *Reconciler) tried(s *scope) {
	if s.scheduled != nil {
		r.Roster.Tried(client.ObjectKeyFromObject(s.scheduled), s.machine.UID, r.Clock.Now())
	}
}

// clusterGoes reports whether the Machine's Cluster is being deleted. One that is missing may
// have been lost.
func (s *scope) clusterGoes() bool {
	return s.cluster != nil && !s.cluster.DeletionTimestamp.IsZero()
}

// planned reports whether the reconciler of ScheduledMachines tells of the Machine, too.
func (r *Reconciler) planned(s *scope) bool {
	sm := s.scheduled
	return sm != nil && metav1.IsControlledBy(s.machine, sm) &&
		(r.watchFilter == "" || labels.HasWatchLabel(sm, r.watchFilter))
}

// ofPlan is what is looked at when the planner says something of a ScheduledMachine.
func ofPlan(scheduled types.NamespacedName) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: scheduled.Namespace, Name: children.NamesOf(scheduled.Name).Machine}}
}
