// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/lending"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

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

// decide returns the Decision at now. Its recheck is not later than the end of the condition LentAgain.
func (s *scope) decide(now time.Time) lifecycle.Decision {
	d := s.resolvePendingPhase(now, lifecycle.Decide(s.facts(now)))
	if mark, told := lending.Of(s.scheduled, now); told && (d.Recheck.IsZero() || mark.Ends().Before(d.Recheck)) {
		d.Recheck = mark.Ends()
	}
	return d
}

// resolvePendingPhase resolves an intermediate phase while writes are suppressed and phases do not change. It returns
// the Decision that follows the intermediate phase.
func (s *scope) resolvePendingPhase(now time.Time, d lifecycle.Decision) lifecycle.Decision {
	if !s.suppressed || !d.Again {
		return d
	}
	f := s.facts(now)
	f.Phase = d.Phase
	return lifecycle.Decide(f)
}
