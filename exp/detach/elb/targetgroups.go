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

// TargetGroups is the Driver of target groups, which application, network and gateway load balancers have. Status sends
// one request for each group; all calls within five seconds share its result.
//
// AWS shows a write only after a second or two. So a target that these Clients deregistered a moment ago counts as
// Draining, whatever AWS reports. A target that was registered again may look deregistered: Restore may be repeated.
type TargetGroups struct {
	spec    expv1.TargetGroupsBalancer
	clients *Clients
}

// NewTargetGroups returns the Driver of a spec. It sends no request. It returns an error if the region, the endpoint or
// an ARN is invalid.
func NewTargetGroups(spec expv1.TargetGroupsBalancer, clients *Clients) (*TargetGroups, error) {
	if err := validate(spec.AWSAccess); err != nil {
		return nil, err
	}
	for _, arn := range spec.ARNs {
		part := strings.SplitN(arn, ":", 6)
		if len(part) != 6 || part[0] != "arn" || part[2] != "elasticloadbalancing" || !strings.HasPrefix(part[5], "targetgroup/") {
			return nil, fmt.Errorf("spec.targetGroups.arns: %q is not the ARN of a target group", arn)
		}
		if part[3] != spec.Region {
			return nil, fmt.Errorf("spec.targetGroups.arns: %q is not of region %s", arn, spec.Region)
		}
	}
	return &TargetGroups{spec: *spec.DeepCopy(), clients: clients}, nil
}

// Every implements balancer.Driver.
func (*TargetGroups) Every() time.Duration { return every }

// Volatile implements balancer.Driver: AWS stores all changes.
func (*TargetGroups) Volatile() bool { return false }

// Discover implements balancer.Driver. A target matches the Node by its instance ID or by an IP address. With an error
// it returns the targets in the groups that answered. A group of the spec that does not exist is an error, because it
// would look like a group without members.
func (t *TargetGroups) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	id := identify(node)
	if id.empty() {
		return nil, noIdentity(node, "neither an instance of EC2 nor an address that a target can have")
	}
	groups, err := t.groups(ctx, id)
	if err != nil {
		return nil, err
	}
	var found []balancer.Membership
	var failures []error
	for _, group := range groups {
		places, err := t.members(ctx, group, id)
		found = append(found, places...)
		if err != nil {
			failures = append(failures, err)
			if stopsCalls(ctx, err) {
				break
			}
		}
	}
	return found, errors.Join(failures...)
}

// members returns the memberships of a Node in a group.
func (t *TargetGroups) members(ctx context.Context, group string, id identity) (found []balancer.Membership, err error) {
	health, err := t.readHealth(ctx, group)
	if health.gone && len(t.spec.ARNs) > 0 {
		err = missing("spec.targetGroups.arns", "target group", group, t.spec.Region)
	}
	for _, d := range health.targets {
		if d.Target != nil && id.is(aws.ToString(d.Target.Id)) && !notRegistered(d.TargetHealth) {
			found = append(found, id.membership(group, d.Target))
		}
	}
	return found, err
}

// Elsewhere implements balancer.Driver.
func (*TargetGroups) Elsewhere(node balancer.Node, m balancer.Membership) bool {
	id, targetID := identify(node), *target(m).Id
	if instanceID.MatchString(targetID) {
		return id.instance != "" && targetID != id.instance
	}
	return len(id.addresses) > 0 && !id.is(targetID)
}

// groups returns the target groups that may contain the Node: the ARNs of the spec, or all groups of the region with a
// matching target type.
func (t *TargetGroups) groups(ctx context.Context, id identity) ([]string, error) {
	if len(t.spec.ARNs) > 0 {
		return t.spec.ARNs, nil
	}
	s, err := t.clients.at(ctx, t.spec.AWSAccess)
	if err != nil {
		return nil, err
	}
	all, err := s.groups.get(ctx, "", func() ([]types.TargetGroup, error) { return list(ctx, s.targetGroups) })
	if err != nil {
		return nil, explain("DescribeTargetGroups", "", err)
	}
	var groups []string
	for _, g := range all {
		instances := g.TargetType == types.TargetTypeEnumInstance && id.instance != ""
		addresses := g.TargetType == types.TargetTypeEnumIp && len(id.addresses) > 0
		if instances || addresses {
			groups = append(groups, aws.ToString(g.TargetGroupArn))
		}
	}
	return groups, nil
}

// list returns all target groups of the region.
func list(ctx context.Context, client *elbv2.Client) ([]types.TargetGroup, error) {
	var all []types.TargetGroup
	pages := elbv2.NewDescribeTargetGroupsPaginator(client, &elbv2.DescribeTargetGroupsInput{PageSize: aws.Int32(pageSize)})
	for n := 0; pages.HasMorePages(); n++ {
		if n == maxPages {
			return nil, failure{text: fmt.Sprintf("more than %d pages: list the target groups in spec.targetGroups.arns", maxPages)}
		}
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, page.TargetGroups...)
	}
	return all, nil
}

// targetHealth is the health of all targets of a group. gone means that the group does not exist.
type targetHealth struct {
	targets []types.TargetHealthDescription
	gone    bool
}

// readHealth returns the health of a group. The result is shared with other callers: do not change it.
func (t *TargetGroups) readHealth(ctx context.Context, group string) (targetHealth, error) {
	s, err := t.clients.at(ctx, t.spec.AWSAccess)
	if err != nil {
		return targetHealth{}, err
	}
	health, err := s.health.get(ctx, group, func() (targetHealth, error) {
		answer, err := s.targetGroups.DescribeTargetHealth(ctx, &elbv2.DescribeTargetHealthInput{TargetGroupArn: &group})
		if isGone(err) {
			return targetHealth{gone: true}, nil
		}
		if err != nil {
			return targetHealth{}, err
		}
		return targetHealth{targets: answer.TargetHealthDescriptions}, nil
	})
	if err != nil {
		return targetHealth{}, explain("DescribeTargetHealth", group, err)
	}
	return health, nil
}

// Status implements balancer.Driver. A target that is not registered is Drained: its deregistration delay is over, and
// Restore registers it again. It is Absent only if its group does not exist. It is Disabled while no load balancer uses
// the group or the target. With an error the memberships of groups that did not answer are Unknown.
func (t *TargetGroups) Status(ctx context.Context, memberships []balancer.Membership) ([]balancer.Status, error) {
	pools, _ := byPool(memberships)
	if len(pools) == 0 {
		return nil, nil
	}
	statuses := make([]balancer.Status, len(memberships)) // Each is Unknown.
	s, err := t.clients.at(ctx, t.spec.AWSAccess)
	if err != nil {
		return statuses, err
	}
	groups := map[string]targetHealth{}
	var failures []error
	for _, pool := range pools {
		health, err := t.readHealth(ctx, pool)
		if err == nil {
			groups[pool] = health
			continue
		}
		failures = append(failures, err)
		if stopsCalls(ctx, err) {
			break
		}
	}
	for i, m := range memberships {
		switch health, read := groups[m.Pool]; {
		case health.gone:
			statuses[i].State = balancer.Absent
		case read:
			statuses[i] = statusOf(m, health.targets, s.drains.out)
		}
	}
	return statuses, errors.Join(failures...)
}

// Drain implements balancer.Driver. Deregistration of a target that is not registered is no error, but counts against
// the request limit. Pass only memberships that are Attached.
func (t *TargetGroups) Drain(ctx context.Context, memberships []balancer.Membership) error {
	return t.clients.callPerPool(ctx, t.spec.AWSAccess, memberships, "DeregisterTargets", func(s *services, group string, members []balancer.Membership) error {
		s.health.forget(group)
		defer s.health.forget(group)
		return s.drains.take(members, func() error {
			_, err := s.targetGroups.DeregisterTargets(ctx, &elbv2.DeregisterTargetsInput{TargetGroupArn: &group, Targets: targets(members)})
			return err
		})
	})
}

// Restore implements balancer.Driver. It registers targets with their recorded ports and zones.
func (t *TargetGroups) Restore(ctx context.Context, memberships []balancer.Membership) error {
	return t.clients.callPerPool(ctx, t.spec.AWSAccess, memberships, "RegisterTargets", func(s *services, group string, members []balancer.Membership) error {
		s.drains.forget(members)
		s.health.forget(group)
		defer s.health.forget(group)
		_, err := s.targetGroups.RegisterTargets(ctx, &elbv2.RegisterTargetsInput{TargetGroupArn: &group, Targets: targets(members)})
		return err
	})
}

// statusOf returns the Status of a membership among all targets of its group. Targets that were deregistered a moment
// ago get no new connections, whatever their health reports.
func statusOf(m balancer.Membership, all []types.TargetHealthDescription, out func(balancer.Membership) bool) balancer.Status {
	mine := key(m)
	status, others := balancer.Status{State: balancer.Drained}, 0
	for _, d := range all {
		if d.Target == nil {
			continue
		}
		place := balancer.Membership{Pool: m.Pool, Member: aws.ToString(d.Target.Id), Port: aws.ToInt32(d.Target.Port)}
		switch {
		case place == mine:
			status.State = stateOf(d.TargetHealth)
		case serves(d.TargetHealth) && !out(place):
			others++
		}
	}
	if status.State == balancer.Attached && out(mine) {
		status.State = balancer.Draining
	}
	status.Others = &others
	return status
}

// serves reports whether a target gets new connections: it is healthy, or has no health checks.
func serves(h *types.TargetHealth) bool {
	return h != nil && (h.State == types.TargetHealthStateEnumHealthy || h.State == types.TargetHealthStateEnumUnavailable)
}

// stateOf converts the health of a target. An unhealthy target gets connections if all targets are unhealthy, and
// whenever it becomes healthy again. An unused target gets none: no load balancer uses its group or zone, or the
// instance is stopped.
func stateOf(h *types.TargetHealth) balancer.State {
	if h == nil {
		return balancer.Unknown
	}
	if notRegistered(h) {
		return balancer.Drained
	}
	switch h.State {
	case types.TargetHealthStateEnumInitial, types.TargetHealthStateEnumHealthy, types.TargetHealthStateEnumUnhealthy,
		types.TargetHealthStateEnumUnhealthyDraining, types.TargetHealthStateEnumUnavailable:
		return balancer.Attached
	case types.TargetHealthStateEnumDraining:
		return balancer.Draining
	case types.TargetHealthStateEnumUnused:
		return balancer.Disabled
	default:
		return balancer.Unknown
	}
}

// notRegistered reports whether the group has no such target.
func notRegistered(h *types.TargetHealth) bool {
	return h != nil && h.Reason == types.TargetHealthReasonEnumNotRegistered
}
