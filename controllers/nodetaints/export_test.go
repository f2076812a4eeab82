// SPDX-License-Identifier: Apache-2.0

package nodetaints

import "github.com/finos/cluster-api-addon-provider-5spot/internal/wake"

// NodesWatch is the name of the watch on Nodes, for a ClusterCache of tests that
// has it already.
const NodesWatch = nodesWatch

// NodeChanges is what of a Node wakes, for tests.
var NodeChanges = wake.Changes(matters)

// WithoutWatches returns r for tests that call Reconcile themselves.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = nodesWatch, r.ClusterCache
	return r
}
