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

// Rejections stores the current rejections of each ScheduledMachine, so that each is reported once and not on
// every reconcile. After a restart each is reported again. The zero value is ready for use. It is safe for
// concurrent use.
type Rejections struct {
	of sync.Map // client.ObjectKey to []ingest.Rejection
}

// ReportNew logs, counts and returns the rejections that the previous call for of did not have.
func (r *Rejections) ReportNew(ctx context.Context, of client.ObjectKey, rejected []ingest.Rejection) []ingest.Rejection {
	v, _ := r.of.Swap(of, rejected)
	last, _ := v.([]ingest.Rejection)
	added := slices.DeleteFunc(slices.Clone(rejected), func(n ingest.Rejection) bool { return slices.Contains(last, n) })
	for _, n := range added {
		Rejected(n.Reason)
		ctrl.LoggerFrom(ctx).Info("Rejected record at ingest", "reason", n.Reason, "why", n.Message)
	}
	return added
}

// Forget drops the state of a deleted ScheduledMachine.
func (r *Rejections) Forget(of client.ObjectKey) { r.of.Delete(of) }
