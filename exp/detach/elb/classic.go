// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

var _ balancer.Driver = &Classic{}

// Classic is the Driver of classic load balancers. It reads only the list of load balancers. The list has the
// registered instances, but neither their health nor the connections of a deregistered one. One request returns 400
// load balancers; all calls within five seconds share the result.
type Classic struct {
	spec    expv1.ClassicELBBalancer
	clients *Clients
}

// NewClassic returns the Driver of a spec. It sends no request. It returns an error if the region or the endpoint is
// invalid.
func NewClassic(spec expv1.ClassicELBBalancer, clients *Clients) (*Classic, error) {
	if err := validate(spec.AWSAccess); err != nil {
		return nil, err
	}
	return &Classic{spec: *spec.DeepCopy(), clients: clients}, nil
}

// Every implements balancer.Driver.
func (*Classic) Every() time.Duration { return every }

// Volatile implements balancer.Driver: AWS stores all changes.
func (*Classic) Volatile() bool { return false }

// Discover implements balancer.Driver. A name of the spec that does not exist is an error, because it would look like a
// load balancer without members. Discover checks the names also for a machine of another cloud, which is never a
// member.
func (c *Classic) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	id := InstanceID(node.ProviderID)
	if id == "" && !elsewhere(node.ProviderID) {
		return nil, noIdentity(node, "no instance of EC2 in its providerID")
	}
	_, all, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	var found []balancer.Membership
	for _, b := range all {
		name := aws.ToString(b.LoadBalancerName)
		there[name] = true
		if wanted := len(c.spec.Names) == 0 || slices.Contains(c.spec.Names, name); wanted && id != "" && slices.Contains(instances(b), id) {
			found = append(found, balancer.Membership{Pool: name, Member: id})
		}
	}
	var failures []error
	for _, name := range c.spec.Names {
		if !there[name] {
			failures = append(failures, missing("spec.classicELB.names", "load balancer", name, c.spec.Region))
		}
	}
	return found, errors.Join(failures...)
}

// Status implements balancer.Driver. A registered instance is Attached, any other is Drained. A drained instance may
// still have connections: the load balancer keeps them for the time of its connection draining, and does not report
// their number. Others counts the registered instances.
func (c *Classic) Status(ctx context.Context, memberships []balancer.Membership) ([]balancer.Status, error) {
	if len(memberships) == 0 {
		return nil, nil
	}
	statuses := make([]balancer.Status, len(memberships)) // Each is Unknown.
	s, all, err := c.list(ctx)
	if err != nil {
		return statuses, err
	}
	registered := map[string][]string{}
	for _, b := range all {
		name := aws.ToString(b.LoadBalancerName)
		registered[name] = slices.DeleteFunc(instances(b), func(id string) bool { return s.drains.out(balancer.Membership{Pool: name, Member: id}) })
	}
	for i, m := range memberships {
		ids, there := registered[m.Pool]
		switch {
		case !there:
			statuses[i].State = balancer.Absent
		case slices.Contains(ids, m.Member):
			statuses[i] = balancer.Status{State: balancer.Attached, Others: aws.Int(len(ids) - 1)}
		default:
			statuses[i] = balancer.Status{State: balancer.Drained, Others: aws.Int(len(ids))}
		}
	}
	return statuses, nil
}

// Elsewhere implements balancer.Driver.
func (*Classic) Elsewhere(node balancer.Node, m balancer.Membership) bool {
	id := InstanceID(node.ProviderID)
	return id != "" && id != m.Member
}

// list returns the clients and all load balancers of the region. A request by name would save nothing, and a missing
// name would make it fail for all.
func (c *Classic) list(ctx context.Context) (s *services, all []types.LoadBalancerDescription, err error) {
	if s, err = c.clients.at(ctx, c.spec.AWSAccess); err != nil {
		return nil, nil, err
	}
	all, err = s.balancers.get(ctx, "", func() ([]types.LoadBalancerDescription, error) {
		var all []types.LoadBalancerDescription
		pages := elb.NewDescribeLoadBalancersPaginator(s.classic, &elb.DescribeLoadBalancersInput{PageSize: aws.Int32(pageSize)})
		for n := 0; pages.HasMorePages(); n++ {
			if n == maxPages {
				return nil, failure{text: fmt.Sprintf("more than %d pages", maxPages)}
			}
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			all = append(all, page.LoadBalancerDescriptions...)
		}
		return all, nil
	})
	if err != nil {
		return nil, nil, explain("DescribeLoadBalancers", "", err)
	}
	return s, all, nil
}

// instances returns the IDs of the registered instances.
func instances(b types.LoadBalancerDescription) []string {
	ids := make([]string, len(b.Instances))
	for i, instance := range b.Instances {
		ids[i] = aws.ToString(instance.InstanceId)
	}
	return ids
}

// Drain implements balancer.Driver.
func (c *Classic) Drain(ctx context.Context, memberships []balancer.Membership) error {
	return c.clients.callPerPool(ctx, c.spec.AWSAccess, memberships, "DeregisterInstancesFromLoadBalancer", func(s *services, name string, members []balancer.Membership) error {
		s.balancers.forget("")
		defer s.balancers.forget("")
		return s.drains.take(members, func() error {
			_, err := s.classic.DeregisterInstancesFromLoadBalancer(ctx, &elb.DeregisterInstancesFromLoadBalancerInput{LoadBalancerName: &name, Instances: named(members)})
			return err
		})
	})
}

// Restore implements balancer.Driver.
func (c *Classic) Restore(ctx context.Context, memberships []balancer.Membership) error {
	return c.clients.callPerPool(ctx, c.spec.AWSAccess, memberships, "RegisterInstancesWithLoadBalancer", func(s *services, name string, members []balancer.Membership) error {
		s.drains.forget(members)
		s.balancers.forget("")
		defer s.balancers.forget("")
		_, err := s.classic.RegisterInstancesWithLoadBalancer(ctx, &elb.RegisterInstancesWithLoadBalancerInput{LoadBalancerName: &name, Instances: named(members)})
		return err
	})
}

// named returns the instances of memberships.
func named(members []balancer.Membership) []types.Instance {
	ids := make([]types.Instance, len(members))
	for i, m := range members {
		ids[i].InstanceId = &m.Member
	}
	return ids
}
