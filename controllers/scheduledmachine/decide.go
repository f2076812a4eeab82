// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// errHostTaken means that another ScheduledMachine reserved the host just now. The cache does not show it yet.
var errHostTaken = errors.New("another ScheduledMachine started to use the same host a moment ago")

// clone is the infrastructure machine that a template produces. One reconcile reads it once, so that 5-Spot creates
// exactly the object whose host it checked.
type clone struct {
	known bool
	// object is nil if the template is invalid or unreadable. read has the problems, and err the error.
	object *unstructured.Unstructured
	read   children.Set
	err    error
}

// observeClone reads which host a template names, and finds the other ScheduledMachines of that host.
func (r *Reconciler) observeClone(ctx context.Context, s *scope) error {
	s.clone = clone{known: true}
	s.clone.object, s.clone.err = r.Children.Desired(ctx, &s.clone.read, children.InfrastructureOf(s.scheduled))
	if s.clone.object == nil {
		return nil // Nothing can be created; act reports the reason.
	}
	return r.observeHost(ctx, s)
}

// reserveAndDecide decides, and reserves the host in memory before anything is created. If two ScheduledMachines of one
// host are reconciled at the same time, the reservation of one fails. That one observes the host again and then sees
// the other. A template is read only if something is about to be created from it.
func (r *Reconciler) reserveAndDecide(ctx context.Context, s *scope, now time.Time) (lifecycle.Decision, error) {
	claim := client.ObjectKeyFromObject(s.scheduled).String()
	d := s.decide(now)
	if d.Action == lifecycle.Ensure && s.children.Infrastructure == nil && cloned(s.scheduled) {
		if err := r.observeClone(ctx, s); err != nil {
			return lifecycle.Decision{}, err
		}
		d = s.decide(now)
		d.Again = d.Again || s.mustPropagateReclaim() // The next reconcile propagates the request.
	}
	if d.Action != lifecycle.Ensure || s.children.Machine != nil {
		if s.children.Machine == nil || s.scheduled.Status.MachineRef != nil { // The status shows the Machine, or there is nothing to reserve: others no longer need the reservation.
			r.hosts.Leave(claim)
		}
		return d, nil
	}
	if r.hosts.Take(claim, s.host.mine.Wants, now) {
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

// leaveHost releases the reservation of the host if no child could be created. It returns err.
func (r *Reconciler) leaveHost(s *scope, err error) error {
	if errors.Is(err, errUnusable) && len(s.children.Existing()) == 0 {
		r.hosts.Leave(client.ObjectKeyFromObject(s.scheduled).String())
	}
	return err
}

// decide returns the Decision at now. Its recheck is not later than the end of the condition LentAgain.
func (s *scope) decide(now time.Time) lifecycle.Decision {
	f := s.facts(now)
	d := lifecycle.Decide(f)
	if s.suppressed && d.Again { // The phase does not change, so the Decision after the intermediate phase counts.
		f.Phase = d.Phase
		d = lifecycle.Decide(f)
	}
	if mark, marked := lending.Of(s.scheduled, now); marked {
		d.Recheck = instant.Earliest(d.Recheck, mark.Ends())
	}
	return d
}
