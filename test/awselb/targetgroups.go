// SPDX-License-Identifier: Apache-2.0

package awselb

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// A group is a target group.
type group struct {
	types.TargetGroup
	targets []*target
}

// A target is a target of a group.
type target struct {
	types.TargetDescription
	history
	state types.TargetHealthStateEnum
}

// AddTargetGroup creates a group of a type, for a port, and returns its ARN.
func (s *Server) AddTargetGroup(name string, kind types.TargetTypeEnum, port int32) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	arn := fmt.Sprintf("arn:aws:elasticloadbalancing:%s:123456789012:targetgroup/%s/%016x", Region, name, len(s.groups)+1)
	g := &group{TargetGroup: types.TargetGroup{TargetGroupArn: &arn, TargetGroupName: &name, TargetType: kind}}
	if kind != types.TargetTypeEnumLambda {
		g.Port = &port
	}
	s.groups = append(s.groups, g)
	return arn
}

// DeleteTargetGroup deletes a group and its targets.
func (s *Server) DeleteTargetGroup(arn string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool { return *g.TargetGroupArn == arn })
}

// AddTarget adds a target as if it had been registered long ago. It has the group's port unless it names one.
func (s *Server) AddTarget(arn string, d types.TargetDescription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(arn); g != nil {
		g.find(d, true).add(time.Time{}, true)
	}
}

// SetHealth sets the state of all targets with an ID.
func (s *Server) SetHealth(arn, id string, state types.TargetHealthStateEnum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.group(arn); g != nil {
		for _, t := range g.targets {
			if *t.Id == id {
				t.state = state
			}
		}
	}
}

// Targets returns the targets that are registered now, regardless of Lag.
func (s *Server) Targets(arn string) []types.TargetDescription {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []types.TargetDescription
	if g := s.group(arn); g != nil {
		for _, t := range g.targets {
			if last, ok := t.at(s.options.Now()); ok && last.registered {
				all = append(all, t.TargetDescription)
			}
		}
	}
	return all
}

func (s *Server) group(arn string) *group {
	i := slices.IndexFunc(s.groups, func(g *group) bool { return *g.TargetGroupArn == arn })
	if i < 0 {
		return nil
	}
	return s.groups[i]
}

// wanted returns the group that a request names.
func (s *Server) wanted(arn *string) (*group, error) {
	if arn == nil || !strings.HasPrefix(*arn, "arn:aws:elasticloadbalancing:") {
		return nil, refuse("ValidationError", "'%s' is not a valid target group ARN", or(arn, ""))
	}
	if g := s.group(*arn); g != nil {
		return g, nil
	}
	return nil, refuse("TargetGroupNotFound", "One or more target groups not found")
}

// find returns a target, which has the group's port unless it names one. If it is missing, find creates it if add is
// true, and returns nil otherwise.
func (g *group) find(d types.TargetDescription, add bool) *target {
	if d.Port == nil {
		d.Port = g.Port
	}
	for _, t := range g.targets {
		if *t.Id == *d.Id && or(t.Port, 0) == or(d.Port, 0) {
			return t
		}
	}
	if !add {
		return nil
	}
	t := &target{TargetDescription: d, state: types.TargetHealthStateEnumHealthy}
	g.targets = append(g.targets, t)
	return t
}

func (s *Server) describeTargetGroups(in *elbv2.DescribeTargetGroupsInput) (*elbv2.DescribeTargetGroupsOutput, error) {
	for _, arn := range in.TargetGroupArns {
		if _, err := s.wanted(&arn); err != nil {
			return nil, err
		}
	}
	var all []types.TargetGroup
	for _, g := range s.groups {
		named := len(in.Names) == 0 || slices.Contains(in.Names, *g.TargetGroupName)
		listed := len(in.TargetGroupArns) == 0 || slices.Contains(in.TargetGroupArns, *g.TargetGroupArn)
		used := in.LoadBalancerArn == nil || slices.Contains(g.LoadBalancerArns, *in.LoadBalancerArn)
		if named && listed && used {
			all = append(all, g.TargetGroup)
		}
	}
	from, to, next, err := s.page(len(all), in.Marker, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &elbv2.DescribeTargetGroupsOutput{TargetGroups: all[from:to], NextMarker: next}, nil
}

func (s *Server) describeTargetHealth(in *elbv2.DescribeTargetHealthInput) (*elbv2.DescribeTargetHealthOutput, error) {
	g, err := s.wanted(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	seen := s.options.Now().Add(-s.options.Lag)
	out := &elbv2.DescribeTargetHealthOutput{}
	if in.Targets == nil {
		for _, t := range g.targets {
			if health := s.health(t, seen); health.Reason != types.TargetHealthReasonEnumNotRegistered {
				out.TargetHealthDescriptions = append(out.TargetHealthDescriptions, described(t.TargetDescription, health))
			}
		}
	}
	for _, d := range in.Targets {
		health := unregistered
		if t := g.find(d, false); t != nil {
			d, health = t.TargetDescription, s.health(t, seen)
		}
		out.TargetHealthDescriptions = append(out.TargetHealthDescriptions, described(d, health))
	}
	return out, nil
}

func described(d types.TargetDescription, health types.TargetHealth) types.TargetHealthDescription {
	return types.TargetHealthDescription{Target: &d, TargetHealth: &health}
}

var unregistered = types.TargetHealth{State: types.TargetHealthStateEnumUnused, Reason: types.TargetHealthReasonEnumNotRegistered}

// health returns the health of a target at an instant.
func (s *Server) health(t *target, at time.Time) types.TargetHealth {
	last, known := t.at(at)
	switch {
	case !known, !last.registered && at.Sub(last.at) >= s.options.Delay:
		return unregistered
	case !last.registered:
		return types.TargetHealth{State: types.TargetHealthStateEnumDraining, Reason: types.TargetHealthReasonEnumDeregistrationInProgress}
	case at.Sub(last.at) < s.options.Warmup:
		return types.TargetHealth{State: types.TargetHealthStateEnumInitial, Reason: types.TargetHealthReasonEnumRegistrationInProgress}
	default:
		return types.TargetHealth{State: t.state}
	}
}

func (s *Server) registerTargets(in *elbv2.RegisterTargetsInput) (*elbv2.RegisterTargetsOutput, error) {
	g, err := s.wanted(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	for _, d := range in.Targets {
		if err := s.admissible(g, d); err != nil {
			return nil, err
		}
	}
	for _, d := range in.Targets {
		t := g.find(d, true)
		t.AvailabilityZone, t.QuicServerId = d.AvailabilityZone, d.QuicServerId
		t.add(s.options.Now(), true)
	}
	return &elbv2.RegisterTargetsOutput{}, nil
}

// admissible returns an error if a group cannot have the target.
func (s *Server) admissible(g *group, d types.TargetDescription) error {
	switch g.TargetType {
	case types.TargetTypeEnumInstance:
		if !strings.HasPrefix(*d.Id, "i-") {
			return refuse("InvalidTarget", "The following targets are not valid instances: '%s'", *d.Id)
		}
		if d.AvailabilityZone != nil {
			return refuse("ValidationError", "You cannot specify an Availability Zone for an instance")
		}
	case types.TargetTypeEnumIp:
		address, err := netip.ParseAddr(*d.Id)
		if err != nil {
			return refuse("ValidationError", "The IP address '%s' is not a valid IP address", *d.Id)
		}
		if !s.vpc.Contains(address) && d.AvailabilityZone == nil {
			return refuse("ValidationError", "The IP address '%s' is not within the VPC: specify an Availability Zone", *d.Id)
		}
	default:
		return refuse("ValidationError", "the type %s is not modelled", g.TargetType)
	}
	return nil
}

// deregisterTargets starts to drain targets. A target that is not registered is not an error.
func (s *Server) deregisterTargets(in *elbv2.DeregisterTargetsInput) (*elbv2.DeregisterTargetsOutput, error) {
	g, err := s.wanted(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	for _, d := range in.Targets {
		if t := g.find(d, false); t != nil {
			t.add(s.options.Now(), false)
		}
	}
	return &elbv2.DeregisterTargetsOutput{}, nil
}

// or returns *p, or a default if p is nil.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
