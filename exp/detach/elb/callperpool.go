// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"errors"
	"slices"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// callPerPool calls an API action for the members of each pool, in batches. It skips a pool that does not exist. It
// continues after an error, unless AWS throttles the requests or the context has ended.
func (c *Clients) callPerPool(ctx context.Context, access expv1.AWSAccess, memberships []balancer.Membership, action string, call func(s *services, pool string, members []balancer.Membership) error) error {
	pools, of := byPool(memberships)
	var failures []error
	for _, pool := range pools {
		for members := range slices.Chunk(of[pool], batch) {
			s, err := c.at(ctx, access)
			if err == nil {
				err = call(s, pool, members)
			}
			if err == nil || isGone(err) {
				continue
			}
			err = explain(action, pool, err)
			failures = append(failures, err)
			if stopsCalls(ctx, err) {
				return errors.Join(failures...)
			}
		}
	}
	return errors.Join(failures...)
}

// byPool groups the memberships by pool. pools has the pools in the order of their first membership.
func byPool(memberships []balancer.Membership) (pools []string, of map[string][]balancer.Membership) {
	of = map[string][]balancer.Membership{}
	for _, m := range memberships {
		if of[m.Pool] == nil {
			pools = append(pools, m.Pool)
		}
		of[m.Pool] = append(of[m.Pool], m)
	}
	return pools, of
}
