// SPDX-License-Identifier: Apache-2.0

// Package installation answers one question: what became of the reclaim agent's
// installation in each workload cluster, as far as this process has tried? Package
// nodesync tells, package protection reports. All of it can be lost: it is tried again.
package installation

import (
	"maps"
	"sync"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A Failure is what went wrong. The zero Failure is none.
type Failure struct {
	// Class tells one failure from another. A failure of the same class keeps the text
	// that it was told with first: what changes from try to try, such as a time or the
	// number of a port, is no news.
	Class string
	// Text is for people, and says what the way out is.
	Text string
}

// An Outcome is what became of one installation.
type Outcome struct {
	// Elsewhere says that somebody else installs the agent.
	Elsewhere bool
	// Failure is that of the whole Cluster.
	Failure Failure
	// Nodes are those of single Nodes, by their names.
	Nodes map[string]Failure
}

// Of returns the failure that concerns a Node.
func (o Outcome) Of(node string) Failure {
	if o.Failure.Class != "" {
		return o.Failure
	}
	return o.Nodes[node]
}

// pending is how many changes wait to be seen, before whoever tells waits too.
const pending = 1024

// A Board has the outcomes. It is safe for concurrent use, and nil takes no notice.
type Board struct {
	mu       sync.Mutex
	outcomes map[client.ObjectKey]Outcome
	changes  chan event.GenericEvent
}

// NewBoard returns a Board.
func NewBoard() *Board {
	return &Board{outcomes: map[client.ObjectKey]Outcome{}, changes: make(chan event.GenericEvent, pending)}
}

// Tell notes an outcome. One that differs from the last is a change.
func (b *Board) Tell(cluster client.ObjectKey, o Outcome) {
	if b == nil || !b.note(cluster, o) {
		return
	}
	changed := &clusterv1.Cluster{}
	changed.Namespace, changed.Name = cluster.Namespace, cluster.Name
	b.changes <- event.GenericEvent{Object: changed}
}

func (b *Board) note(cluster client.ObjectKey, o Outcome) (changed bool) {
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

// unless returns f as it was told first.
func (f Failure) unless(now Failure) Failure {
	if f.Class == now.Class {
		return f
	}
	return now
}

// Outcome returns the last one. ok is false where there was none yet.
func (b *Board) Outcome(cluster client.ObjectKey) (o Outcome, ok bool) {
	if b == nil {
		return Outcome{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok = b.outcomes[cluster]
	return o, ok
}

// Forget forgets a Cluster that has no agent.
func (b *Board) Forget(cluster client.ObjectKey) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.outcomes, cluster)
}

// Changes are the Clusters whose outcome changed.
func (b *Board) Changes() <-chan event.GenericEvent { return b.changes }
