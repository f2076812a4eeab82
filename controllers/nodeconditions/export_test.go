// SPDX-License-Identifier: Apache-2.0

package nodeconditions

import "github.com/finos/cluster-api-addon-provider-5spot/internal/wake"

// NodesWatch is the name of the watch on Nodes, for a fake ClusterCache with this watch.
const NodesWatch = nodesWatch

// NodeChanges and MachineChanges are the predicates of the watches.
var (
	NodeChanges    = wake.Changes(matters)
	MachineChanges = machineChanges
)

// WithoutWatches disables the watches, for tests that call Reconcile.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = nodesWatch, r.ClusterCache
	return r
}
