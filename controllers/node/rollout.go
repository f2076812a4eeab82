// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// A rollout limits how many agents get additional programs within departurecap.Window, in a Cluster and in all Clusters.
// A program that runs everywhere, added to all ScheduledMachines, would otherwise return all machines at once. After a
// restart of the manager the changes are unknown, so at most one more part of the agents gets a mistake. The zero value
// has no recent change.
type rollout struct {
	mu sync.Mutex
	// changes has the latest change of each request.
	changes map[ctrl.Request]change
	// agents is the number of agents by Cluster at the instant counted. allClusters has their sum.
	agents  map[client.ObjectKey]int
	counted time.Time
}

// A change is when an agent of a Cluster got additional programs.
type change struct {
	cluster client.ObjectKey
	at      time.Time
}

// allClusters is the key of all Clusters together.
var allClusters client.ObjectKey

// full returns zero if another agent of the Cluster may get programs. Otherwise it returns the end of the window of the
// latest change: an earlier end would wake all agents that wait for each single one.
func (r *rollout) full(cluster client.ObjectKey, fraction departurecap.Fraction) time.Time {
	n, latest := 0, time.Time{}
	for _, c := range r.changes {
		if cluster != allClusters && c.cluster != cluster {
			continue
		}
		if n++; c.at.After(latest) {
			latest = c.at
		}
	}
	if n < fraction.Of(r.agents[cluster]) {
		return time.Time{}
	}
	return latest.Add(departurecap.Window)
}

// stage decides whether the agent gets the programs that its ConfigMap lacks. If not, it sets s.staged and the time of
// the next reconcile. An agent that only loses programs gets its list at once: that can undo a mistake. A write that is
// repeated, because it failed or the cache is old, counts once.
func (r *Reconciler) stage(ctx context.Context, s *scope) error {
	if r.RolloutFraction <= 0 || !s.scheduled.Spec.AgentConfig().Adds(s.configMap.Data[reclaimapi.ConfigMapKey]) {
		return nil
	}
	ro := &r.rollout
	ro.mu.Lock()
	defer ro.mu.Unlock()
	now := r.Clock.Now()
	if now.Sub(ro.counted) >= departurecap.Window {
		agents, err := r.countAgents(ctx)
		if err != nil {
			return err
		}
		ro.agents, ro.counted = agents, now
	}
	if ro.changes == nil {
		ro.changes = map[ctrl.Request]change{}
	}
	maps.DeleteFunc(ro.changes, func(_ ctrl.Request, c change) bool { return now.Sub(c.at) >= departurecap.Window })
	if _, repeated := ro.changes[s.request]; !repeated {
		for _, cluster := range []client.ObjectKey{s.key, allClusters} {
			if at := ro.full(cluster, r.RolloutFraction); !at.IsZero() {
				s.staged = true
				s.recheckAt(at)
				return nil
			}
		}
	}
	ro.changes[s.request] = change{s.key, now}
	return nil
}

// countAgents returns the number of ScheduledMachines of this manager that have a Node and need an agent.
func (r *Reconciler) countAgents(ctx context.Context) (map[client.ObjectKey]int, error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	agents := map[client.ObjectKey]int{}
	for i := range list.Items {
		sm := &list.Items[i]
		if sm.Status.NodeRef != nil && installed.Uses(sm) && workload.MatchesFilter(r.watchFilter, sm) {
			agents[workload.ClusterKey(sm)]++
			agents[allClusters]++
		}
	}
	return agents, nil
}
