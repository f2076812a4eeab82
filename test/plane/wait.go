// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// Wait reads obj from the cluster until cond returns nil. It also waits for obj to exist. The error contains the last
// error of cond.
func (c *Cluster) Wait(ctx context.Context, obj client.Object, cond func() error) error {
	return await.Object(ctx, c.Client, obj, cond)
}

// WaitGone returns when obj does not exist any more.
func (c *Cluster) WaitGone(ctx context.Context, obj client.Object) error {
	return await.Gone(ctx, c.Client, obj)
}

// Until calls cond until it returns nil. The error contains the last error of cond.
func Until(ctx context.Context, cond func(context.Context) error) error {
	return await.Until(ctx, cond)
}
