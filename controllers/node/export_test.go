// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// Collector returns the metrics collector; it reports after elected is closed.
func Collector(reader client.Reader, elected <-chan struct{}) prometheus.Collector {
	return collector{reader, elected}
}

// TakeRollout has another agent get additional programs.
func (r *Reconciler) TakeRollout(now time.Time) { r.rollout.start(1, now) }
