// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Guard exports guard, which Remote applies to the client of a workload cluster.
func (g *Gate) Guard(ctx context.Context, c client.Client, cache clustercache.ClusterCache, cluster client.ObjectKey) (client.Client, error) {
	return g.guard(ctx, c, cache, cluster)
}
