// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// NodesWatch is the name of the watch on Nodes, for tests whose ClusterCache has it already.
const NodesWatch = nodesWatch

// RequestFor is requestFor, for tests.
var RequestFor func(cluster types.NamespacedName, node string) ctrl.Request = requestFor

// WithoutWatches returns r for tests that call Reconcile themselves.
func (r *NodeReconciler) WithoutWatches(podCache remoteCache) *NodeReconciler {
	r.nodes.Name, r.nodes.Cache, r.podCache = nodesWatch, r.ClusterCache, podCache
	return r
}

// PodNode is the index function of pods by Node, and NodeField the name of that index, for tests.
var PodNode = podNode

// AddressField is addressField, for tests.
const AddressField = addressField

// IndexAddresses is indexAddresses, for tests.
var IndexAddresses = indexAddresses

// NodeField is nodeField, for tests.
const NodeField = nodeField

// DiscoveryHash is discoveryHash, for tests.
var DiscoveryHash = discoveryHash

// NodeChanges, MachineChanges, PodChanges and SetChanges are the predicates of the watches, for tests.
var (
	NodeChanges, MachineChanges = wake.Changes(nodeFields), wake.Changes(machineFields)
	PodChanges, SetChanges      = wake.Changes(podMatters), wake.Changes(setMatters)
)

// OfPod returns the requests for a pod event, for tests.
func (r *NodeReconciler) OfPod(ctx context.Context, cluster types.NamespacedName, pod client.Object) []ctrl.Request {
	return r.ofPod(ctx, cluster, pod)
}
