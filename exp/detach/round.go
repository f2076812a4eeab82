// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// round is the state of one reconcile of a load balancer.
type round struct {
	lb      *expv1.LoadBalancer
	cluster *clusterv1.Cluster
	// balancers are the load balancers of the Cluster that are not being deleted.
	balancers []expv1.LoadBalancer
	// nodes has an entry for each NodeAttachment that this load balancer must drain or restore.
	nodes []*nodeBalancer
	// failed is why the load balancer could not be read. It is nil if it was read.
	failed error
	// callErrors collects the errors of parts of the load balancer that did not answer, and of failed calls.
	callErrors error
	// called means that this round sent a request to the load balancer.
	called bool
	// wait is how long connections may continue that the load balancer does not count.
	wait time.Duration
	now  time.Time
	// every and volatile are the values of the Driver's methods of these names.
	every    time.Duration
	volatile bool
}

// nodeBalancer is one Node at one load balancer.
type nodeBalancer struct {
	attachment *expv1.NodeAttachment
	// out means that the Node must be detached. discovered means that its memberships have been discovered.
	out, discovered bool
	// closing means that the LoadBalancer is being deleted and the machine does not leave, or that the Node will not
	// come back. All memberships are restored.
	closing bool
	// failed is why the state of this Node is unknown although the load balancer answers.
	failed error
	// deferred means that its record is not written in this round, which then neither drains nor restores its
	// memberships.
	deferred bool
	// members are its memberships. steps has the step for each of them.
	members []plan.Member
	steps   []plan.MemberAction
}

// nodeBalancerOf returns nil if the load balancer has nothing to drain, restore or report for the Node.
func nodeBalancerOf(lb *expv1.LoadBalancer, a *expv1.NodeAttachment) *nodeBalancer {
	s := &nodeBalancer{attachment: a, closing: !lb.DeletionTimestamp.IsZero() && !leaves(a) || nodeAbandoned(a)}
	s.out = mustDetachFrom(a, lb) && !s.closing
	for _, m := range a.Spec.Memberships {
		if m.LoadBalancer == lb.Name {
			s.add(m, true)
		}
	}
	p := progressOf(a, lb.Name)
	if s.discovered = current(p, lb, a); s.out && s.discovered {
		s.addFound(p.Members)
	}
	if !s.out && len(s.members) == 0 && p == nil {
		return nil
	}
	return s
}

// addFound adds discovered memberships that are not on record as drained.
func (s *nodeBalancer) addFound(members []expv1.MembershipStatus) {
	for _, m := range members {
		if !slices.ContainsFunc(s.attachment.Spec.Memberships, m.Same) {
			s.add(m.Membership, false)
		}
	}
}

// rank is the sort key of a Node: emergencies come first.
func (s *nodeBalancer) rank() int {
	if s.attachment.Spec.Trigger == string(plan.Emergency) {
		return 0
	}
	return 1
}

func (s *nodeBalancer) add(m expv1.Membership, taken bool) {
	trigger := plan.Trigger(s.attachment.Spec.Trigger)
	s.members = append(s.members, plan.Member{
		Node: s.attachment.Name, Taken: taken, Out: s.out, Urgent: trigger == plan.Emergency, Gone: trigger == plan.Gone && !s.closing, Closing: s.closing,
		Since: s.attachment.Spec.TriggerTime.Time, TakenAt: m.DrainTime.Time,
		Membership: membershipOf(m),
	})
}

// membershipOf converts a recorded membership to the Driver's type.
func membershipOf(m expv1.Membership) balancer.Membership {
	return balancer.Membership{Pool: m.Pool, Member: m.Member, Port: m.Port, Address: m.Address, Persistent: m.Persistent}
}

// readMemberships discovers memberships where necessary, and reads the status of all.
func (o *round) readMemberships(ctx context.Context, driver balancer.Driver) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, s := range o.nodes {
		wanted := s.out && !s.discovered && s.attachment.Spec.Trigger != string(plan.Gone)
		misplaced := func(m plan.Member) bool { return o.addressChanged(driver, s, m) }
		if !wanted && !slices.ContainsFunc(s.members, misplaced) {
			continue
		}
		if err := o.discover(ctx, driver, s); err != nil {
			return err
		}
	}
	if err := o.readStatuses(ctx, driver); err != nil || !o.volatile {
		return err
	}
	return o.rediscoverLost(ctx, driver)
}

// rediscoverLost discovers the memberships of detached Nodes that have lost one: a reload of the load balancer may have
// renamed servers.
func (o *round) rediscoverLost(ctx context.Context, driver balancer.Driver) error {
	moved := false
	for _, s := range o.nodes {
		if !s.out || s.attachment.Spec.Trigger == string(plan.Gone) || !slices.ContainsFunc(s.members, absent) {
			continue
		}
		before := len(s.members)
		if err := o.discover(ctx, driver, s); err != nil {
			return err
		}
		moved = moved || len(s.members) > before
	}
	if !moved {
		return nil
	}
	return o.readStatuses(ctx, driver)
}

// absent reports whether the membership no longer belongs to the Node. After a reload, the Node may have another one.
func absent(m plan.Member) bool { return m.Status.State == balancer.Absent }

// addressChanged reports whether a drained membership has an address that the Node no longer has. Its server may have
// followed the Node: DNS and "set server addr" change the address of a server, and keep the drain.
func (o *round) addressChanged(driver balancer.Driver, s *nodeBalancer, m plan.Member) bool {
	return o.lb.Spec.HAProxy != nil && m.Taken && driver.Elsewhere(s.node(), m.Membership)
}

// node returns the identity of the Node for drivers.
func (s *nodeBalancer) node() balancer.Node {
	spec := s.attachment.Spec
	return balancer.Node{Name: spec.NodeName, ProviderID: spec.ProviderID, Addresses: spec.Addresses}
}

// readStatuses reads the status of all memberships.
func (o *round) readStatuses(ctx context.Context, driver balancer.Driver) error {
	var memberships []balancer.Membership
	for _, s := range o.nodes {
		for _, m := range s.members {
			memberships = append(memberships, m.Membership)
		}
	}
	if len(memberships) == 0 {
		return nil
	}
	o.called = true
	statuses, err := driver.Status(ctx, memberships)
	switch {
	case len(statuses) == len(memberships): // A part of the load balancer may have answered.
	case err != nil:
		return err
	default:
		return fmt.Errorf("asked for %d members, it answered for %d", len(memberships), len(statuses))
	}
	o.callErrors = join(o.callErrors, err)
	for _, s := range o.nodes {
		for i := range s.members {
			o.setStatus(driver, s, &s.members[i], statuses[0], err)
			statuses = statuses[1:]
		}
	}
	return nil
}

// setStatus sets the status of a membership. err is the error of the read, which may concern only other memberships.
func (o *round) setStatus(driver balancer.Driver, s *nodeBalancer, m *plan.Member, status balancer.Status, err error) {
	m.Status = status
	if status.Partial || err != nil && status.State == balancer.Unknown {
		s.failed = err
	}
	switch {
	case s.failed != nil && o.addressChanged(driver, s, *m): // The address could not be read.
		m.Status = balancer.Status{State: balancer.Unknown}
	case driver.Elsewhere(s.node(), m.Membership):
		m.Status = balancer.Status{State: balancer.Absent}
	}
}

// discover finds the memberships of a Node. A partial result counts, and the next round repeats the discovery.
func (o *round) discover(ctx context.Context, driver balancer.Driver, s *nodeBalancer) error {
	o.called = true
	found, err := driver.Discover(ctx, s.node())
	switch {
	case errors.Is(err, balancer.ErrNoIdentity):
		s.failed = err
		return nil
	case err != nil && len(found) == 0 && ctx.Err() != nil:
		return err
	case err != nil:
		s.failed = err
	}
	s.discovered, o.callErrors = err == nil, join(o.callErrors, err)
	for i := range s.members {
		if m := &s.members[i]; o.addressChanged(driver, s, *m) {
			m.Membership.Address = addressIn(found, m.Membership)
		}
	}
	for _, m := range found {
		if s.out && !slices.ContainsFunc(s.members, func(known plan.Member) bool { return known.Membership.Same(m) }) {
			s.add(recordOf(o.lb.Name, m), false)
		}
	}
	return nil
}

// addressIn returns the address of a membership among those found for its Node. It returns the recorded address if the
// membership is not among them.
func addressIn(found []balancer.Membership, membership balancer.Membership) string {
	recorded := membership.Address
	for _, m := range found {
		if membership.Address = m.Address; m.Same(membership) {
			return m.Address
		}
	}
	return recorded
}

// join is errors.Join without duplicates: the parts of a load balancer often return the same error.
func join(errs ...error) (all error) {
	for _, err := range errs {
		if err != nil && (all == nil || all.Error() != err.Error()) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// decide computes the step of each member. It plans nothing for members in an unknown state.
func (o *round) decide() {
	var all []plan.Member
	for _, s := range o.nodes {
		for i := range s.members {
			s.members[i].Volatile = o.volatile
		}
		all = append(all, s.members...)
	}
	steps := plan.Round(all, int(ptr.Deref(o.lb.Spec.MinMembers, 1)))
	for _, s := range o.nodes {
		s.steps, steps = steps[:len(s.members)], steps[len(s.members):]
	}
}

// again returns the delay until the next round. It is zero if no membership is drained or waits to be.
func (o *round) again() (again time.Duration) {
	sooner := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	for _, s := range o.nodes {
		switch p := s.phase(o); {
		case s.deferred:
			sooner(wake.QuietRetry)
		case errors.Is(errors.Join(o.failed, o.callErrors), balancer.ErrThrottled):
			sooner(throttledRetryInterval)
		case o.failed != nil, o.callErrors != nil:
			sooner(max(o.every, retryInterval))
		case s.failed != nil: // Only a change of the Node's data can fix it.
			sooner(recheckInterval)
		case p == expv1.PhaseDetached && o.volatile:
			sooner(volatileRecheckInterval)
		case p == expv1.PhaseDetached, s.disabled():
			sooner(recheckInterval)
		case p != "":
			sooner(o.every)
		}
	}
	return again
}
