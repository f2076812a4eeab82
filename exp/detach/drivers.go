// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/elb"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/haproxy"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/kubeproxy"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodelabel"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// NewDrivers returns the drivers of all kinds of load balancers.
func NewDrivers(c clock.PassiveClock, write *actuate.Actuator, cache clustercache.ClusterCache) *AllDrivers {
	return &AllDrivers{clock: c, write: write, clusters: cache, aws: elb.NewClients(c), cache: map[types.NamespacedName]cachedDriver{}}
}

// AllDrivers creates one driver for each generation of a LoadBalancer and caches it. It is safe for concurrent use.
type AllDrivers struct {
	clock    clock.PassiveClock
	write    *actuate.Actuator
	clusters clustercache.ClusterCache
	aws      *elb.Clients

	mu    sync.Mutex
	cache map[types.NamespacedName]cachedDriver
}

// cachedDriver is a cached Driver with the LoadBalancer for which it was created.
type cachedDriver struct {
	uid        types.UID
	generation int64
	driver     balancer.Driver
}

// For implements Drivers.
func (d *AllDrivers) For(lb *expv1.LoadBalancer) (balancer.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := client.ObjectKeyFromObject(lb)
	if m, ok := d.cache[key]; ok && m.uid == lb.UID && m.generation == lb.Generation {
		return m.driver, nil
	}
	driver, err := d.make(lb)
	if err != nil {
		return nil, err
	}
	d.cache[key] = cachedDriver{lb.UID, lb.Generation, driver}
	return driver, nil
}

// Forget implements Drivers.
func (d *AllDrivers) Forget(lb types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.cache, lb)
}

var _ Drivers = &AllDrivers{}

func (d *AllDrivers) make(lb *expv1.LoadBalancer) (balancer.Driver, error) {
	of := nodesOf{d, client.ObjectKey{Namespace: lb.Namespace, Name: lb.Spec.ClusterName}}
	switch spec := lb.Spec; {
	case spec.KubeProxy != nil:
		return kubeproxy.New(*spec.KubeProxy, of, d.clock), nil
	case spec.Label != nil:
		return nodelabel.New(*spec.Label, of, d.clock), nil
	case spec.HAProxy != nil:
		return haproxy.New(*spec.HAProxy)
	case spec.TargetGroups != nil:
		return elb.NewTargetGroups(*spec.TargetGroups, d.aws)
	case spec.ClassicELB != nil:
		return elb.NewClassic(*spec.ClassicELB, d.aws)
	default:
		return nil, errors.New("spec names no load balancer: set exactly one of kubeProxy, label, haproxy, targetGroups and classicELB")
	}
}

// nodesOf reads and writes the Nodes of one workload cluster.
type nodesOf struct {
	d       *AllDrivers
	cluster client.ObjectKey
}

var _ nodemark.Nodes = nodesOf{}

// Get implements nodemark.Nodes. It reads the Node live, because 5-Spot has just written it.
func (n nodesOf) Get(ctx context.Context, name string) (*corev1.Node, error) {
	reader, err := workload.Live(ctx, n.d.clusters, n.cluster)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	return node, reader.Get(ctx, client.ObjectKey{Name: name}, node)
}

// List implements nodemark.Nodes.
func (n nodesOf) List(ctx context.Context) ([]corev1.Node, error) {
	reader, err := n.d.clusters.GetReader(ctx, n.cluster)
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	err = reader.List(ctx, nodes)
	return nodes.Items, err
}

// Edit implements nodemark.Nodes.
func (n nodesOf) Edit(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error {
	remote, err := n.d.write.Remote(ctx, n.d.clusters, n.cluster)
	if err != nil {
		return err
	}
	before := node.DeepCopy()
	change(node)
	return remote.For(actuate.Intent{Kind: audit.NodePatch, Why: "LoadBalancer", At: n.d.clock.Now(), Cluster: n.cluster}).PatchLocked(ctx, node, before)
}
