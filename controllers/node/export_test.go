// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

// Names of the watches.
const (
	NodesWatch      = nodesWatch
	PodsWatch       = podsWatch
	ConfigMapsWatch = configMapsWatch
)

// Functions and predicates for tests.
var (
	TroubleOf, TrimPod, AgentOn      = notReadyReason, trimPod, agentOn
	PodFacts                         = podFacts
	NodeChanges, DepartureProgresses = wake.Changes(nodeFacts), departureProgresses
)

// WithoutWatches disables the watches, for tests that call Reconcile.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = nodesWatch, r.ClusterCache
	r.pods.Name, r.pods.Cache = podsWatch, r.ClusterCache
	r.configMaps.Name, r.configMaps.Cache = configMapsWatch, r.ClusterCache
	r.retries = wake.Backoff()
	return r
}

// TakeRollout has n other agents of a Cluster get additional programs.
func (r *Reconciler) TakeRollout(cluster client.ObjectKey, n int) {
	if r.rollout.changes == nil {
		r.rollout.changes = map[ctrl.Request]change{}
	}
	for range n {
		other := client.ObjectKey{Name: strconv.Itoa(len(r.rollout.changes))}
		r.rollout.changes[ctrl.Request{NamespacedName: other}] = change{cluster, r.Clock.Now()}
	}
}

// ProgramsAdded returns when an agent got additional programs.
func (r *Reconciler) ProgramsAdded(sm client.ObjectKey) time.Time {
	return r.rollout.changes[ctrl.Request{NamespacedName: sm}].at
}

// WithWatchFilter sets the watch filter, like SetupWithManager.
func (r *Reconciler) WithWatchFilter(filter string) *Reconciler {
	r.watchFilter = filter
	return r
}
