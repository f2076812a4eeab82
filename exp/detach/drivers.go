// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/haproxy"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// NewDrivers returns the drivers of all kinds of load balancers.
func NewDrivers(c clock.PassiveClock, write *actuate.Actuator, cache clustercache.ClusterCache) *AllDrivers {
	return &AllDrivers{clock: c, write: write, clusters: cache, made: map[types.UID]made{}}
}

// AllDrivers makes drivers, one for each version of a LoadBalancer. It is safe for concurrent
// use.
type AllDrivers struct {
	clock    clock.PassiveClock
	write    *actuate.Actuator
	clusters clustercache.ClusterCache

	mu   sync.Mutex
	made map[types.UID]made
}

// made is a Driver, and for which generation it was made.
type made struct {
	generation int64
	driver     balancer.Driver
}

// For is a Drivers.
func (d *AllDrivers) For(ctx context.Context, lb *expv1.LoadBalancer) (balancer.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.made[lb.UID]; ok && m.generation == lb.Generation {
		return m.driver, nil
	}
	driver, err := d.make(ctx, lb)
	if err != nil {
		return nil, err
	}
	d.made[lb.UID] = made{lb.Generation, driver}
	return driver, nil
}

func (d *AllDrivers) make(_ context.Context, lb *expv1.LoadBalancer) (balancer.Driver, error) {
	switch spec := lb.Spec; {
	case spec.HAProxy != nil:
		return haproxy.New(*spec.HAProxy)
	default:
		return nil, errors.New("spec names no load balancer: set exactly one of kubeProxy, label, haproxy, targetGroups and classicELB")
	}
}
