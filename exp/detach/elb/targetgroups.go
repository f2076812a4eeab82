// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

var _ balancer.Driver = &TargetGroups{}

// TargetGroups is the Driver of target groups, which application, network and gateway load
// balancers have. A look costs a call for each group, however many memberships it has: ask
// for all at once.
//
// AWS shows a write only after a while, a second or two. Until then a target that was taken
// out may look Attached, and one that was put back Draining or Drained. Drain and Restore
// can be said again, and a State means something if it is still so at the next look.
type TargetGroups struct {
	spec    expv1.TargetGroupsBalancer
	clients *Clients
}

// NewTargetGroups returns the Driver of a spec. It calls nobody.
func NewTargetGroups(spec *expv1.TargetGroupsBalancer, clients *Clients) (*TargetGroups, error) {
	if err := validate(spec.AWSAccess); err != nil {
		return nil, err
	}
	for _, arn := range spec.ARNs {
		part := strings.SplitN(arn, ":", 6)
		if len(part) != 6 || part[0] != "arn" || part[2] != "elasticloadbalancing" || !strings.HasPrefix(part[5], "targetgroup/") {
			return nil, fmt.Errorf("%q is not the ARN of a target group", arn)
		}
		if part[3] != spec.Region {
			return nil, fmt.Errorf("target group %s is not of region %s", arn, spec.Region)
		}
	}
	return &TargetGroups{spec: *spec.DeepCopy(), clients: clients}, nil
}

// Every implements balancer.Driver.
func (*TargetGroups) Every() time.Duration { return every }

// Volatile implements balancer.Driver: AWS keeps what it was told.
func (*TargetGroups) Volatile() bool { return false }

// Discover implements balancer.Driver. A target is the Node if it is its instance or one of
// its addresses. With an error it returns what it found in the groups that answered. A group
// that is gone has no members.
func (t *TargetGroups) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	who := identify(node)
	if who.nobody() {
		return nil, nil
	}
	groups, err := t.groups(ctx, who)
	if err != nil {
		return nil, err
	}
	var found []balancer.Membership
	var failures []error
	for _, group := range groups {
		all, _, err := t.look(ctx, group)
		if err != nil {
			failures = append(failures, err)
			if hopeless(ctx, err) {
				break
			}
		}
		for _, d := range all {
			if d.Target != nil && who.is(aws.ToString(d.Target.Id)) && !notRegistered(d.TargetHealth) {
				found = append(found, membership(group, d.Target))
			}
		}
	}
	return found, errors.Join(failures...)
}

// groups returns the groups in which to look for a Node: those given, or those of the region
// that can have it.
func (t *TargetGroups) groups(ctx context.Context, who identity) ([]string, error) {
	if len(t.spec.ARNs) > 0 {
		return t.spec.ARNs, nil
	}
	s, err := t.clients.at(ctx, t.spec.AWSAccess)
	if err != nil {
		return nil, err
	}
	var groups []string
	pages := elbv2.NewDescribeTargetGroupsPaginator(s.targetGroups, &elbv2.DescribeTargetGroupsInput{PageSize: aws.Int32(pageSize)})
	for n := 0; pages.HasMorePages(); n++ {
		if n == maxPages {
			return nil, fmt.Errorf("DescribeTargetGroups: more than %d pages: list the target groups in spec.targetGroups.arns", maxPages)
		}
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("DescribeTargetGroups", "", err)
		}
		for _, g := range page.TargetGroups {
			instances := g.TargetType == types.TargetTypeEnumInstance && who.instance != ""
			addresses := g.TargetType == types.TargetTypeEnumIp && len(who.addresses) > 0
			if instances || addresses {
				groups = append(groups, aws.ToString(g.TargetGroupArn))
			}
		}
	}
	return groups, nil
}

// look returns all targets of a group, and false for a group that is gone.
func (t *TargetGroups) look(ctx context.Context, group string) ([]types.TargetHealthDescription, bool, error) {
	s, err := t.clients.at(ctx, t.spec.AWSAccess)
	if err != nil {
		return nil, false, err
	}
	answer, err := s.targetGroups.DescribeTargetHealth(ctx, &elbv2.DescribeTargetHealthInput{TargetGroupArn: &group})
	if isGone(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, explain("DescribeTargetHealth", group, err)
	}
	return answer.TargetHealthDescriptions, true, nil
}

// isGone says that there is no such group.
func isGone(err error) bool {
	_, gone := errors.AsType[*types.TargetGroupNotFoundException](err)
	return gone
}

// Status implements balancer.Driver. A target that is not registered is Drained: its
// deregistration delay is over, and Restore makes it again. It is Absent only with its
// group. With an error the memberships of groups that did not answer are Unknown.
func (t *TargetGroups) Status(ctx context.Context, memberships []balancer.Membership) ([]balancer.Status, error) {
	pools, _ := byPool(memberships)
	looks := map[string]func(balancer.Membership) balancer.Status{}
	var failures []error
	for _, pool := range pools {
		all, there, err := t.look(ctx, pool)
		switch {
		case err != nil:
			failures = append(failures, err)
		case !there:
			looks[pool] = func(balancer.Membership) balancer.Status { return balancer.Status{State: balancer.Absent} }
		default:
			looks[pool] = func(m balancer.Membership) balancer.Status { return statusOf(m, all) }
		}
		if err != nil && hopeless(ctx, err) {
			break
		}
	}
	statuses := make([]balancer.Status, len(memberships))
	for i, m := range memberships {
		statuses[i].State = balancer.Unknown
		if look := looks[m.Pool]; look != nil {
			statuses[i] = look(m)
		}
	}
	return statuses, errors.Join(failures...)
}

// Drain implements balancer.Driver. AWS counts no error for a target that is out already,
// but it counts the call: it is for memberships that are Attached.
func (t *TargetGroups) Drain(ctx context.Context, memberships []balancer.Membership) error {
	return tell(ctx, memberships, "DeregisterTargets", isGone, func(group string, members []balancer.Membership) error {
		s, err := t.clients.at(ctx, t.spec.AWSAccess)
		if err == nil {
			_, err = s.targetGroups.DeregisterTargets(ctx, &elbv2.DeregisterTargetsInput{TargetGroupArn: &group, Targets: targets(members)})
		}
		return err
	})
}

// Restore implements balancer.Driver. Targets are registered as they were, with their ports
// and zones.
func (t *TargetGroups) Restore(ctx context.Context, memberships []balancer.Membership) error {
	return tell(ctx, memberships, "RegisterTargets", isGone, func(group string, members []balancer.Membership) error {
		s, err := t.clients.at(ctx, t.spec.AWSAccess)
		if err == nil {
			_, err = s.targetGroups.RegisterTargets(ctx, &elbv2.RegisterTargetsInput{TargetGroupArn: &group, Targets: targets(members)})
		}
		return err
	})
}

// statusOf returns the Status of a membership among all targets of its group.
func statusOf(m balancer.Membership, all []types.TargetHealthDescription) balancer.Status {
	id := aws.ToString(target(m).Id)
	status := balancer.Status{State: balancer.Drained}
	others := map[string]bool{}
	for _, d := range all {
		switch {
		case d.Target == nil:
		case aws.ToString(d.Target.Id) != id:
			if serves(d.TargetHealth) {
				others[aws.ToString(d.Target.Id)] = true
			}
		case aws.ToInt32(d.Target.Port) == m.Port:
			status.State = stateOf(d.TargetHealth)
		}
	}
	status.Others = aws.Int(len(others)) // A machine with several ports is one.
	return status
}

// serves says that a target gets new connections. One that is healthy does, and so does one
// whose health nobody checks.
func serves(h *types.TargetHealth) bool {
	return h != nil && (h.State == types.TargetHealthStateEnumHealthy || h.State == types.TargetHealthStateEnumUnavailable)
}

// stateOf returns what the health of a target means. One that is unhealthy gets connections
// when all are, and at any moment when it is healthy again. One that is unused gets none: it
// is not registered, or no load balancer uses its group or its zone.
func stateOf(h *types.TargetHealth) balancer.State {
	if h == nil {
		return balancer.Unknown
	}
	switch h.State {
	case types.TargetHealthStateEnumInitial, types.TargetHealthStateEnumHealthy, types.TargetHealthStateEnumUnhealthy,
		types.TargetHealthStateEnumUnhealthyDraining, types.TargetHealthStateEnumUnavailable:
		return balancer.Attached
	case types.TargetHealthStateEnumDraining:
		return balancer.Draining
	case types.TargetHealthStateEnumUnused:
		return balancer.Drained
	default:
		return balancer.Unknown
	}
}

// notRegistered says that there is no such target.
func notRegistered(h *types.TargetHealth) bool {
	return h != nil && h.Reason == types.TargetHealthReasonEnumNotRegistered
}
