// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/controllers"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/remote"
)

// Backend makes simulated nodes in the workload clusters of any number of Clusters.
type Backend struct {
	// Context ends all simulations. It is a field because a simulation outlives the call that starts it.
	Context context.Context //nolint:containedctx // see above
	// Kubeconfigs connect to the workload clusters.
	Kubeconfigs *remote.Kubeconfigs

	mu       sync.Mutex
	clusters map[client.ObjectKey]*Cluster
}

// Ensure implements controllers.Backend.
func (b *Backend) Ensure(ctx context.Context, h controllers.Host) (string, error) {
	c, err := b.cluster(ctx, h.Cluster)
	if err != nil {
		return "", err
	}
	n := Node{
		Name: h.NodeName, ProviderID: h.ProviderID, MachineID: h.MachineID, Address: cmp.Or(h.Address, Address(10, h.NodeName)), Version: h.Version, LeaseSeconds: h.LeaseSeconds, Silent: h.Silent,
	}
	if n.MachineID == "" {
		n.MachineID = MachineID(h.ID)
	}
	return n.Address, c.Ensure(ctx, n)
}

// Remove implements controllers.Backend.
func (b *Backend) Remove(ctx context.Context, h controllers.Host, deleteNode bool) error {
	b.Forget(h)
	if !deleteNode {
		return nil
	}
	c, err := b.cluster(ctx, h.Cluster)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return c.DeleteNode(ctx, h.NodeName)
}

// Forget implements controllers.Backend: another process simulates the Node from now on.
func (b *Backend) Forget(h controllers.Host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.clusters[h.Cluster]; ok {
		c.Remove(h.NodeName)
	}
}

func (b *Backend) cluster(ctx context.Context, key client.ObjectKey) (*Cluster, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.clusters[key]; ok {
		return c, nil
	}
	cfg, err := b.Kubeconfigs.Config(ctx, key)
	if err != nil {
		return nil, err
	}
	c, err := Start(b.Context, cfg) //nolint:contextcheck // it outlives this call
	if err != nil {
		return nil, err
	}
	if b.clusters == nil {
		b.clusters = map[client.ObjectKey]*Cluster{}
	}
	b.clusters[key] = c
	return c, nil
}
