// SPDX-License-Identifier: Apache-2.0

package awselb

import (
	"slices"
	"time"

	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
)

// A loadBalancer is a classic load balancer.
type loadBalancer struct {
	name      string
	instances []*instance
}

// An instance is an instance of a classic load balancer.
type instance struct {
	id string
	history
}

// AddLoadBalancer creates a classic load balancer with instances.
func (s *Server) AddLoadBalancer(name string, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &loadBalancer{name: name}
	for _, id := range ids {
		b.find(id, true).add(time.Time{}, true)
	}
	s.balancers = append(s.balancers, b)
}

// DeleteLoadBalancer deletes a classic load balancer.
func (s *Server) DeleteLoadBalancer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.balancers = slices.DeleteFunc(s.balancers, func(b *loadBalancer) bool { return b.name == name })
}

// Instances returns the instances that are registered now, regardless of Lag.
func (s *Server) Instances(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.balancer(name); b != nil {
		return b.registered(s.options.Now())
	}
	return nil
}

func (s *Server) balancer(name string) *loadBalancer {
	i := slices.IndexFunc(s.balancers, func(b *loadBalancer) bool { return b.name == name })
	if i < 0 {
		return nil
	}
	return s.balancers[i]
}

// find returns an instance. If it is missing, find creates it if add is true, and returns nil otherwise.
func (b *loadBalancer) find(id string, add bool) *instance {
	for _, i := range b.instances {
		if i.id == id {
			return i
		}
	}
	if !add {
		return nil
	}
	i := &instance{id: id}
	b.instances = append(b.instances, i)
	return i
}

// registered returns the instances that were registered at an instant.
func (b *loadBalancer) registered(at time.Time) []string {
	var ids []string
	for _, i := range b.instances {
		if last, ok := i.at(at); ok && last.registered {
			ids = append(ids, i.id)
		}
	}
	return ids
}

var errNoBalancer = refuse("LoadBalancerNotFound", "There is no ACTIVE Load Balancer named so")

func (s *Server) describeLoadBalancers(in *classic.DescribeLoadBalancersInput) (*classic.DescribeLoadBalancersOutput, error) {
	for _, name := range in.LoadBalancerNames {
		if s.balancer(name) == nil {
			return nil, errNoBalancer
		}
	}
	seen := s.options.Now().Add(-s.options.Lag)
	var all []types.LoadBalancerDescription
	for _, b := range s.balancers {
		if len(in.LoadBalancerNames) == 0 || slices.Contains(in.LoadBalancerNames, b.name) {
			all = append(all, types.LoadBalancerDescription{LoadBalancerName: &b.name, Instances: named(b.registered(seen))})
		}
	}
	from, to, next, err := s.page(len(all), in.Marker, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &classic.DescribeLoadBalancersOutput{LoadBalancerDescriptions: all[from:to], NextMarker: next}, nil
}

func (s *Server) registerInstances(in *classic.RegisterInstancesWithLoadBalancerInput) (*classic.RegisterInstancesWithLoadBalancerOutput, error) {
	ids, err := s.change(in.LoadBalancerName, in.Instances, true)
	return &classic.RegisterInstancesWithLoadBalancerOutput{Instances: ids}, err
}

func (s *Server) deregisterInstances(in *classic.DeregisterInstancesFromLoadBalancerInput) (*classic.DeregisterInstancesFromLoadBalancerOutput, error) {
	ids, err := s.change(in.LoadBalancerName, in.Instances, false)
	return &classic.DeregisterInstancesFromLoadBalancerOutput{Instances: ids}, err
}

// change registers or deregisters instances, and returns the ones that are registered now.
func (s *Server) change(name *string, instances []types.Instance, register bool) ([]types.Instance, error) {
	b := s.balancer(or(name, ""))
	if b == nil {
		return nil, errNoBalancer
	}
	for _, i := range instances {
		if place := b.find(or(i.InstanceId, ""), register); place != nil {
			place.add(s.options.Now(), register)
		}
	}
	return named(b.registered(s.options.Now())), nil
}

func named(ids []string) []types.Instance {
	var all []types.Instance
	for _, id := range ids {
		all = append(all, types.Instance{InstanceId: &id})
	}
	return all
}
