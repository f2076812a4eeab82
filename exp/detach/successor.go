// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"slices"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

// setSuccessors finds a successor for each membership that would be restored: another LoadBalancer of the same pool
// that keeps the Node detached. Without a successor, the Node would get connections until the other LoadBalancer drains
// it again.
func (s *nodeBalancer) setSuccessors(lb *expv1.LoadBalancer, all []expv1.LoadBalancer) {
	if s.out {
		return
	}
	for i := range all {
		other, a := &all[i], s.attachment
		if other.Name == lb.Name || !covers(&other.Spec, &lb.Spec) || !mustDetach(a, other.Name) || a.Spec.ControlPlane && !other.Spec.ControlPlane {
			continue
		}
		p := progressOf(a, other.Name)
		requested := current(p, other, a)
		if !requested && p != nil && p.Phase == expv1.PhaseUnknown {
			continue // It does not answer. The restore does not wait for it.
		}
		for j := range s.members {
			setSuccessor(&s.members[j], other.Name, p, requested)
		}
	}
}

// setSuccessor records a LoadBalancer as the successor of a membership that it has discovered, or that it may still
// discover.
func setSuccessor(m *plan.Member, name string, p *expv1.BalancerProgress, requested bool) {
	membership := recordOf(name, m.Membership)
	found := requested && slices.ContainsFunc(p.Members, func(known expv1.MembershipStatus) bool { return known.Same(membership) })
	if m.Taken && !m.Found && (found || !requested) {
		m.Successor, m.Found = name, found
	}
}

// covers reports whether other reaches all HAProxy processes, or the AWS account and region, of lb. It does not compare
// memberships.
func covers(other, lb *expv1.LoadBalancerSpec) bool {
	switch {
	case lb.HAProxy != nil && other.HAProxy != nil:
		return !slices.ContainsFunc(lb.HAProxy.Endpoints, func(e string) bool { return !slices.Contains(other.HAProxy.Endpoints, e) })
	case lb.TargetGroups != nil && other.TargetGroups != nil:
		return lb.TargetGroups.AWSAccess == other.TargetGroups.AWSAccess
	case lb.ClassicELB != nil && other.ClassicELB != nil:
		return lb.ClassicELB.AWSAccess == other.ClassicELB.AWSAccess
	default:
		return lb.KubeProxy != nil && other.KubeProxy != nil || lb.Label != nil && other.Label != nil
	}
}

// handOver moves a membership to the record of another LoadBalancer. It drops the entry if the other one has a record
// already.
func (s *nodeBalancer) handOver(membership expv1.Membership, to string) {
	spec := &s.attachment.Spec
	i := slices.IndexFunc(spec.Memberships, membership.Same)
	if membership.LoadBalancer = to; i >= 0 && !slices.ContainsFunc(spec.Memberships, membership.Same) {
		spec.Memberships[i].LoadBalancer = to
	} else if i >= 0 {
		spec.Memberships = slices.Delete(spec.Memberships, i, i+1)
	}
}
