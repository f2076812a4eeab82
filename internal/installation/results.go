// SPDX-License-Identifier: Apache-2.0

// Package installation holds the latest result of the reclaim agent's installation in each workload cluster, in memory.
// Package nodesync writes it, and package protection reads it. After a restart, nodesync tries again and fills it.
package installation

import (
	"maps"
	"sync"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A Failure is an error for people. The zero Failure means that there was none.
type Failure struct {
	// Class identifies the kind of failure. A failure of the same class retains its first Text: details such as a
	// time or a port may differ on each try.
	Class string
	// Text describes the failure and how to resolve it.
	Text string
}

// An Outcome is the result of one installation.
type Outcome struct {
	// Elsewhere reports that 5-Spot does not install the agent.
	Elsewhere bool
	// Failure is the failure of the installation in the Cluster.
	Failure Failure
	// Nodes has the failures of single Nodes, by name.
	Nodes map[string]Failure
}

// Of returns the failure that affects a Node: the Cluster's, else its own.
func (o Outcome) Of(node string) Failure {
	if o.Failure.Class != "" {
		return o.Failure
	}
	return o.Nodes[node]
}

// pending is the capacity of the channel of changes. Record blocks if it is full.
const pending = 1024

// A Results has the latest Outcome of each Cluster. It is safe for concurrent use. A nil Results ignores Record
// and Forget, and has no Outcome.
type Results struct {
	mu       sync.Mutex
	outcomes map[client.ObjectKey]Outcome
	changes  chan event.GenericEvent
}

// NewResults returns an empty Results.
func NewResults() *Results {
	return &Results{outcomes: map[client.ObjectKey]Outcome{}, changes: make(chan event.GenericEvent, pending)}
}

// Record records the Outcome of a Cluster, and sends a change if it differs from the last one.
func (b *Results) Record(cluster client.ObjectKey, o Outcome) {
	if b == nil || !b.note(cluster, o) {
		return
	}
	changed := &clusterv1.Cluster{}
	changed.Namespace, changed.Name = cluster.Namespace, cluster.Name
	b.changes <- event.GenericEvent{Object: changed}
}

func (b *Results) note(cluster client.ObjectKey, o Outcome) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.outcomes[cluster]
	o.Failure = last.Failure.unless(o.Failure)
	nodes := make(map[string]Failure, len(o.Nodes))
	for name, f := range o.Nodes {
		nodes[name] = last.Nodes[name].unless(f)
	}
	o.Nodes = nodes
	b.outcomes[cluster] = o
	return !known || last.Elsewhere != o.Elsewhere || last.Failure != o.Failure || !maps.Equal(last.Nodes, o.Nodes)
}

// unless returns f if now has the same class, else now.
func (f Failure) unless(now Failure) Failure {
	if f.Class == now.Class {
		return f
	}
	return now
}

// Outcome returns the latest Outcome of a Cluster. ok is false if there is none.
func (b *Results) Outcome(cluster client.ObjectKey) (o Outcome, ok bool) {
	if b == nil {
		return Outcome{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok = b.outcomes[cluster]
	return o, ok
}

// Forget removes the Outcome of a Cluster without an agent.
func (b *Results) Forget(cluster client.ObjectKey) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.outcomes, cluster)
}

// Changes returns the channel of Clusters whose Outcome changed.
func (b *Results) Changes() <-chan event.GenericEvent { return b.changes }
