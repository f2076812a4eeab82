// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What tests use of this package.
const (
	NodesWatch = nodesWatch
	PodsWatch  = podsWatch
)

var TroubleOf, TrimPod, AgentOn, WhatPodsShow, NodeChanges = troubleOf, trimPod, agentOn, whatPodsShow, changes(whatNodesSay)

// WithoutWatches returns r for tests that call Reconcile themselves.
func (r *Reconciler) WithoutWatches() *Reconciler {
	r.nodes.Name, r.nodes.Cache = nodesWatch, r.ClusterCache
	r.pods.Name, r.pods.Cache = podsWatch, r.ClusterCache
	return r
}

// Collector counts for the leader, once it is elected.
func Collector(reader client.Reader, elected <-chan struct{}) prometheus.Collector {
	return collector{reader, elected}
}
