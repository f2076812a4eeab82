// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names for tests.
const (
	NodesWatch = nodesWatch
	PodsWatch  = podsWatch
)

var TroubleOf, TrimPod, AgentOn, WhatPodsShow, NodeChanges = troubleOf, trimPod, agentOn, podStateOf, changes(nodeStateOf)

// WithoutWatches disables the watches, for tests that call Reconcile.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = nodesWatch, r.ClusterCache
	r.pods.Name, r.pods.Cache = podsWatch, r.ClusterCache
	return r
}

// Collector returns the metrics collector; it reports after elected is closed.
func Collector(reader client.Reader, elected <-chan struct{}) prometheus.Collector {
	return collector{reader, elected}
}
