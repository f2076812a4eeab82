// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

// A rollout limits how many agents get additional programs within departure.Window. A program that runs everywhere, added
// to all ScheduledMachines, would otherwise return all machines at once. The zero value has no recent change. It is safe
// for concurrent use.
type rollout struct {
	mu      sync.Mutex
	changes []time.Time
}

// start counts a change, and returns zero. With limit recent changes, it returns when the next may start.
func (r *rollout) start(limit int, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = departure.Recent(r.changes, now)
	if n := len(r.changes); n >= limit {
		return r.changes[n-limit].Add(departure.Window)
	}
	r.changes = append(r.changes, now)
	return time.Time{}
}

// stage reports whether the agent may get its programs now. If not, it sets the time of the next reconcile. A Node without
// a ConfigMap gets one at once, and so does an agent that only loses programs: that can undo a mistake.
func (r *Reconciler) stage(ctx context.Context, s *scope) (now bool, err error) {
	if r.RolloutFraction <= 0 || s.configMap == nil || !reclaimapi.ConfigFor(s.scheduled.Spec.KillIfCommands).Adds(s.configMap.Data[reclaimapi.ConfigMapKey]) {
		return true, nil
	}
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	watched := 0
	for i := range list.Items {
		if patternsOf(&list.Items[i]) != "" {
			watched++
		}
	}
	at := r.rollout.start(r.RolloutFraction.Of(watched), s.now)
	s.recheckAt(at)
	s.staged = !at.IsZero()
	return !s.staged, nil
}
