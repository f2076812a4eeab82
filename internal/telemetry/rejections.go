// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"slices"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
)

// Rejections remembers what was rejected last of each ScheduledMachine, so that a rejection
// is told when it comes and not at each look. After a restart each is told again. The zero
// value is ready for use, and it is safe for concurrent use.
type Rejections struct {
	mu sync.Mutex
	of map[client.ObjectKey][]ingest.Rejection
}

// Tell logs and counts what was not rejected at the last look, and returns it.
func (r *Rejections) Tell(ctx context.Context, of client.ObjectKey, rejected []ingest.Rejection) []ingest.Rejection {
	last := r.swap(of, rejected)
	news := slices.DeleteFunc(slices.Clone(rejected), func(n ingest.Rejection) bool { return slices.Contains(last, n) })
	for _, n := range news {
		Rejected(n.Reason)
		ctrl.LoggerFrom(ctx).Info("Rejected record at ingest", "reason", n.Reason, "why", n.Message)
	}
	return news
}

func (r *Rejections) swap(of client.ObjectKey, rejected []ingest.Rejection) (last []ingest.Rejection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last = r.of[of]
	switch {
	case len(rejected) == 0:
		delete(r.of, of)
	case r.of == nil:
		r.of = map[client.ObjectKey][]ingest.Rejection{of: rejected}
	default:
		r.of[of] = rejected
	}
	return last
}

// Forget forgets a ScheduledMachine that is gone.
func (r *Rejections) Forget(of client.ObjectKey) { r.swap(of, nil) }
