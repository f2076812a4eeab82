// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// addressField is the index of Machines, and of Nodes, by IP address.
const addressField = "status.addresses"

// NodesByAddress returns the index of Nodes that the cache of a workload cluster needs.
func NodesByAddress() clustercache.CacheOptionsIndex {
	return clustercache.CacheOptionsIndex{Object: &corev1.Node{}, Field: addressField, ExtractValue: indexAddresses}
}

// AddIndexes adds the index of Machines to the cache of mgr.
func AddIndexes(ctx context.Context, mgr ctrl.Manager) error {
	return mgr.GetCache().IndexField(ctx, &clusterv1.Machine{}, addressField, indexAddresses)
}

func indexAddresses(obj client.Object) []string {
	switch o := obj.(type) {
	case *clusterv1.Machine:
		return machineAddresses(o)
	case *corev1.Node:
		return nodeAddresses(o)
	default:
		return nil
	}
}

// withAddress selects, for each address, the objects that have it.
func withAddress(addresses []string) (each []client.MatchingFields) {
	for _, address := range addresses {
		each = append(each, client.MatchingFields{addressField: address})
	}
	return each
}

// machinesWith returns the Machines that have a Node and match any of these fields. The results may share memory with
// the cache: do not change them.
func machinesWith(ctx context.Context, reader client.Reader, fields []client.MatchingFields, opts ...client.ListOption) (all []clusterv1.Machine, err error) {
	for _, field := range fields {
		list := &clusterv1.MachineList{}
		if err := reader.List(ctx, list, append(opts, field, client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, fmt.Errorf("listing Machines: %w", err)
		}
		all = append(all, list.Items...)
	}
	return slices.DeleteFunc(all, func(m clusterv1.Machine) bool { return !m.Status.NodeRef.IsDefined() }), nil
}

// others returns the machines that have an address or the provider ID of this Node, but are not its machine. They may
// belong to any Cluster, because Clusters can share a load balancer. It returns nothing if the Node's Machine has
// addresses, which then count.
func (r *NodeReconciler) others(ctx context.Context, s *scope) (all []other, err error) {
	if s.node == nil || s.machine != nil && len(machineAddresses(s.machine)) > 0 {
		return nil, nil
	}
	cluster, addresses := client.ObjectKeyFromObject(s.cluster), nodeAddresses(s.node)
	fields := append(withAddress(addresses), client.MatchingFields{index.MachineProviderIDField: s.node.Spec.ProviderID})
	machines, err := machinesWith(ctx, r.Reader, fields)
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		if clusterOf(&m) != cluster || m.Status.NodeRef.Name != s.node.Name {
			all = append(all, other{m.Spec.ProviderID, machineAddresses(&m)})
		}
	}
	nodes, err := r.otherNodes(ctx, cluster, s.node.Name, addresses)
	return append(all, nodes...), err
}

// otherNodes returns the Nodes of a Cluster that have any of these addresses, except the Node with this name.
func (r *NodeReconciler) otherNodes(ctx context.Context, cluster client.ObjectKey, name string, addresses []string) (all []other, err error) {
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return nil, err
	}
	for _, field := range withAddress(addresses) {
		nodes := &corev1.NodeList{}
		if err := reader.List(ctx, nodes, field, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing Nodes: %w", err)
		}
		for i := range nodes.Items {
			if n := &nodes.Items[i]; n.Name != name {
				all = append(all, other{addresses: nodeAddresses(n)})
			}
		}
	}
	return all, nil
}
