// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
)

// reportClaim sets the condition HostClaimed while other ScheduledMachines name the same host, and deletes it
// otherwise.
func (s *scope) reportClaim(now time.Time) {
	if s.host.Standing == hosts.Alone {
		conditions.Delete(s.scheduled, v1alpha1.HostClaimedCondition)
		return
	}
	s.setCondition(s.hostClaimed(), now)
}

// hostClaimed returns the condition HostClaimed: the standing of the object among the ScheduledMachines of the same
// host, and what a person can do.
func (s *scope) hostClaimed() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.HostClaimedCondition, Status: metav1.ConditionTrue}
	other, same := s.other(), s.host.ID.String()
	switch s.host.Standing {
	case hosts.Withheld:
		c.Reason = v1alpha1.HostReclaimedReason
		c.Message = fmt.Sprintf("The owner of the host (%s) requested it through %s, and has not lent it again. Nothing is created before kubectl 5spot resume %s", same, other, s.host.With.Name)
	case hosts.Second:
		c.Reason = v1alpha1.ClaimedByAnotherReason
		then := "nothing is created before that one is deleted, or names another host"
		if s.children.Machine != nil {
			then = "the running machine stays, but is not created again before one of them is deleted, or names another host"
		}
		c.Message = fmt.Sprintf("The host (%s) is also named by %s, which comes first: %s", same, other, then)
	case hosts.First:
		c.Reason = v1alpha1.ClaimedFirstReason
		c.Message = fmt.Sprintf("The host (%s) is also named by %s: only this one goes on. Delete one of them, or correct its host", same, other)
	default:
		c.Reason = v1alpha1.DuplicateMachineIDReason
		c.Message = fmt.Sprintf("The machine of %s has the same %s: it is the same host, or a copy of its image. Give each host its own ID", other, same)
	}
	return c
}

// other describes the first of the other ScheduledMachines. It does not name one of another namespace, because a reader
// of this namespace may have no access there.
func (s *scope) other() string {
	with := s.host.With
	switch {
	case with.Namespace != s.scheduled.Namespace:
		return "a ScheduledMachine of another namespace"
	case s.host.More:
		return "ScheduledMachine " + with.Name + " (and others)"
	default:
		return "ScheduledMachine " + with.Name
	}
}

// ofHost maps a changed ScheduledMachine to the ScheduledMachines of the same host that the change affects.
// hosts.Affected bounds their number, so that a thousand copies of one manifest do not all enqueue each other.
func (r *Reconciler) ofHost(ctx context.Context, obj client.Object) []ctrl.Request {
	sm := obj.(*v1alpha1.ScheduledMachine)
	mine := claimOf(sm, wantedNames(sm))
	var requests []ctrl.Request
	for _, id := range mine.IDs() {
		_, others, err := r.namedHost(ctx, sm, []hosts.ID{id})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of host")
			return requests
		}
		for _, c := range hosts.Affected(mine, id, others) {
			req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: c.Namespace, Name: c.Name}}
			if !slices.Contains(requests, req) {
				requests = append(requests, req)
			}
		}
	}
	return requests
}

// hostChanges filters for updates that may change the standing of ScheduledMachines of the same host. The phase counts,
// because it changes when a ScheduledMachine stops before it used its host.
func hostChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.ScheduledMachine), e.ObjectNew.(*v1alpha1.ScheduledMachine)
		return before.Status.Phase != after.Status.Phase ||
			!reflect.DeepEqual(claimOf(before, wantedNames(before)), claimOf(after, wantedNames(after)))
	}}
}
