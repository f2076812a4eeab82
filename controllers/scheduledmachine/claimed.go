// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hosts"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// errHostTaken reports that somebody began to use the host whom nobody can see.
var errHostTaken = errors.New("another ScheduledMachine has just begun to use the same host")

// decide decides, and notes before anything is made that the host is being used: of two
// that are looked at in the same moment one is refused, and sees the other by then. What is
// inside a template is known when something is about to be made from it.
func (r *Reconciler) decide(ctx context.Context, s *scope, now time.Time) (lifecycle.Decision, error) {
	who := client.ObjectKeyFromObject(s.scheduled).String()
	d := s.decide(now)
	if d.Action == lifecycle.Ensure && s.children.Infrastructure == nil && cloned(s.scheduled) {
		if err := r.observeClone(ctx, s); err != nil {
			return lifecycle.Decision{}, err
		}
		d = s.decide(now)
		d.Again = d.Again || s.untold() // Which the next look does.
	}
	if d.Action != lifecycle.Ensure || s.children.Machine != nil {
		if s.children.Machine == nil || s.scheduled.Status.MachineRef != nil { // Everybody can see that.
			r.hosts.Leave(who)
		}
		return d, nil
	}
	if r.hosts.Take(who, s.host.mine.Wants, now) {
		return d, nil
	}
	if err := r.observeHost(ctx, s); err != nil {
		return lifecycle.Decision{}, err
	}
	if d = s.decide(now); d.Action == lifecycle.Ensure {
		return lifecycle.Decision{}, errHostTaken
	}
	return d, nil
}

// clone is the infrastructure machine that a template makes. It is read once in a look:
// what is made must be what was judged.
type clone struct {
	known bool
	// object is nil where the template cannot be used, or read: read says why, or err.
	object *unstructured.Unstructured
	read   children.Set
	err    error
}

// observeClone finds out which host a template names, and who else names it.
func (r *Reconciler) observeClone(ctx context.Context, s *scope) error {
	s.clone = clone{known: true}
	s.clone.object, s.clone.err = r.Children.Desired(ctx, &s.clone.read, children.InfrastructureOf(s.scheduled))
	if s.clone.object == nil {
		return nil // Nothing can be made, and act says why.
	}
	return r.observeHost(ctx, s)
}

// desired is a child that is to be made: of a template the one that was judged.
func (r *Reconciler) desired(ctx context.Context, s *scope, p children.Part) (*unstructured.Unstructured, error) {
	if !s.clone.known || p.Field != children.InfrastructureOf(s.scheduled).Field {
		return r.Children.Desired(ctx, &s.children, p)
	}
	s.children.Problems = append(s.children.Problems, s.clone.read.Problems...)
	s.children.Templates = append(s.children.Templates, s.clone.read.Templates...)
	return s.clone.object, s.clone.err
}

// leaveHost forgets that the host was about to be used where nothing could be made. It
// returns err.
func (r *Reconciler) leaveHost(s *scope, err error) error {
	if errors.Is(err, errUnusable) && len(s.children.Existing()) == 0 {
		r.hosts.Leave(client.ObjectKeyFromObject(s.scheduled).String())
	}
	return err
}

// reportClaim says who else names the host, as long as somebody does.
func (s *scope) reportClaim(now time.Time) {
	if s.host.Standing == hosts.Alone {
		conditions.Delete(s.scheduled, v1alpha1.HostClaimedCondition)
		return
	}
	c := s.hostClaimed()
	c.Message, c.LastTransitionTime = clip.Message(c.Message), metav1.NewTime(now)
	conditions.Set(s.scheduled, c)
}

// hostClaimed says where the object stands among those that name the same host, and the
// way out.
func (s *scope) hostClaimed() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.HostClaimedCondition, Status: metav1.ConditionTrue}
	other, same := s.other(), s.host.ID.String()
	switch s.host.Standing {
	case hosts.Withheld:
		c.Reason = v1alpha1.OwnerHasHostReason
		c.Message = fmt.Sprintf("The owner of the host (%s) asked for it through %s, and has not lent it again: nothing is created before somebody runs kubectl 5spot resume %s", same, other, s.host.With.Name)
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
		c.Reason = v1alpha1.SameMachineIDReason
		c.Message = fmt.Sprintf("The machine of %s has the same %s: it is the same host, or a copy of its image. Give each host its own ID", other, same)
	}
	return c
}

// other names the foremost of the others. Who may read this namespace may not read
// another's.
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

// ofHost returns those of the same host whom a change of obj concerns. Of a thousand copies
// of one manifest not all wake all, nor does one wake all others.
func (r *Reconciler) ofHost(ctx context.Context, obj client.Object) []ctrl.Request {
	sm, ok := obj.(*v1alpha1.ScheduledMachine)
	if !ok {
		return nil
	}
	mine := r.claims.of(sm).claim
	var requests []ctrl.Request
	for _, id := range mine.IDs() {
		named, err := r.named(ctx, sm, id)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines of host")
			return requests
		}
		others := make([]hosts.Claim, len(named))
		for i, o := range named {
			others[i] = r.claims.of(o).claim
		}
		for _, c := range hosts.Concerned(mine, id, others) {
			req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: c.Namespace, Name: c.Name}}
			if !slices.Contains(requests, req) {
				requests = append(requests, req)
			}
		}
	}
	return requests
}

// hostChanges lets through what may change how those of the same host stand. Whoever was
// about to use the host and does not changes its phase.
func (r *Reconciler) hostChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ScheduledMachine)
		after, ok2 := e.ObjectNew.(*v1alpha1.ScheduledMachine)
		return !ok || !ok2 || !sameClaim(r.claims.of(before).claim, r.claims.of(after).claim) || before.Status.Phase != after.Status.Phase ||
			before.Annotations[v1alpha1.ReclaimTimesAnnotation] != after.Annotations[v1alpha1.ReclaimTimesAnnotation]
	}}
}

func sameClaim(a, b hosts.Claim) bool {
	return slices.Equal(a.Wants, b.Wants) && slices.Equal(a.Has, b.Has) && a.Owner == b.Owner &&
		a.Since.Equal(b.Since) && a.MadeAt.Equal(b.MadeAt)
}
