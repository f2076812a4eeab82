// SPDX-License-Identifier: Apache-2.0

package nodeconditions

import "github.com/finos/cluster-api-addon-provider-5spot/internal/wake"

// NodesWatch is the name of the watch on Nodes, for a ClusterCache of tests that
// has it already.
const NodesWatch = nodesWatch

// NodeChanges and MachineChanges are what wakes, for tests.
var (
	NodeChanges    = wake.Changes(matters)
	MachineChanges = machineChanges
)

// WithoutWatches returns r for tests that call Reconcile themselves.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = nodesWatch, r.ClusterCache
	return r
}
