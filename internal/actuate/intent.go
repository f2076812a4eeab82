// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// An Intent is why a machine is taken away.
type Intent struct {
	// Reason is written on the Machine.
	Reason v1alpha1.DepartureReason
	// At is now, by the clock that the departure's budget is measured by.
	At time.Time
}

// An Action is an Actuator that takes a machine away, for a reason.
type Action struct {
	*Actuator
	Intent
}

// For returns the Action for i.
func (a *Actuator) For(i Intent) Action { return Action{a, i} }

// Remote returns an Actuator that writes to a workload cluster. The error of one that is
// not connected is clustercache.ErrClusterNotConnected.
func Remote(ctx context.Context, cache clustercache.ClusterCache, cluster client.ObjectKey) (*Actuator, error) {
	c, err := cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}
