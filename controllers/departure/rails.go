// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
)

// A rail returns why it holds departures of a Cluster, nil if it does not, and when to check that again, zero if only an
// event changes it. It sees the holds of the rails before it in o.fleet.
type rail func(ctx context.Context, key client.ObjectKey, c *cluster, o *observation) (*departurecap.Hold, time.Time)

// rails are the rails that are enabled, in order of precedence. The cap comes last: departurecap.Decide has it.
func (r *Reconciler) rails() []rail {
	if !r.WipeGuard && r.Cap == 0 {
		return []rail{person}
	}
	return []rail{person, r.clock, r.warmUp, r.wipe}
}

// checkRails adds the holds to the fleet. It returns when to check them again.
func (r *Reconciler) checkRails(ctx context.Context, key client.ObjectKey, c *cluster, o *observation) (next time.Time) {
	r.setBaseline(key, c, o)
	for _, rail := range r.rails() {
		hold, again := rail(ctx, key, c, o)
		if hold != nil {
			o.fleet.Holds = append(o.fleet.Holds, *hold)
		}
		next = instant.Earliest(next, again)
	}
	return next
}

// maxHoldReason is the maximum length of a person's reason in a condition message, in bytes.
const maxHoldReason = 200

// person holds departures while the Cluster has a person's annotation.
func person(_ context.Context, _ client.ObjectKey, _ *cluster, o *observation) (*departurecap.Hold, time.Time) {
	if o.cluster == nil {
		return nil, time.Time{}
	}
	reason, held := o.cluster.Annotations[v1alpha1.HoldDeparturesAnnotation]
	if !held {
		return nil, time.Time{}
	}
	if reason = clip.To(clip.Line(reason), maxHoldReason); reason != "" {
		reason = ": " + reason
	}
	return &departurecap.Hold{Reason: v1alpha1.DeparturesHeldReason, Message: fmt.Sprintf(
		"The departures of Cluster %s are held%s. To end this: kubectl 5spot -n %s release-departures %s",
		o.cluster.Name, reason, o.cluster.Namespace, o.cluster.Name)}, time.Time{}
}

// clock holds departures while the clock of this manager may be wrong.
func (r *Reconciler) clock(ctx context.Context, key client.ObjectKey, _ *cluster, o *observation) (*departurecap.Hold, time.Time) {
	if r.APIClock.Trust() != rails.Suspect || len(o.fleet.Candidates) == 0 {
		return nil, time.Time{}
	}
	// The request gives APIClock a sample of the API server's time. A manager without leader election might make no other.
	if err := r.Live.Get(ctx, key, &clusterv1.Cluster{}); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading the time of the API server")
	}
	return &departurecap.Hold{
		Reason:  v1alpha1.ClockSuspectReason,
		Message: "The manager's clock may be wrong: it differs from the API server's by more than 1m, or was set within 5m",
	}, o.fleet.Now.Add(rails.Apart)
}

// warmUp holds departures after this manager became leader, or got a Cluster from another manager. It counts from the
// first run for the Cluster. The caches are synced by then.
func (r *Reconciler) warmUp(_ context.Context, _ client.ObjectKey, c *cluster, o *observation) (*departurecap.Hold, time.Time) {
	if c.since.IsZero() {
		c.since = o.fleet.Now
	}
	stage, next := rails.Lead{Since: c.since, Lease: r.Lease, Sampled: r.APIClock.Trust() != rails.Unsampled}.WarmUp(o.fleet.Now)
	if stage == rails.Warm {
		return nil, time.Time{}
	}
	r.grow(c, o.fleet)
	if len(o.fleet.Candidates) == 0 {
		next = time.Time{} // No candidate waits for the end of the warm-up.
	}
	hold := &departurecap.Hold{
		Reason:  v1alpha1.WarmUpReason,
		Message: "Departures are held for 10s, because the manager just began to serve the Cluster: earlier departures under the previous manager still count",
	}
	if stage == rails.Learning {
		hold.Unscheduled = true
		hold.Message = "Unscheduled departures are held until the lease of the previous leader has expired, because the manager just began to serve the Cluster"
	}
	return hold, next
}

// wipe holds unscheduled departures while nearly all machines of the Cluster or of the fleet would leave at once and this
// is not confirmed. It makes no check while the clock or the warm-up holds departures.
func (r *Reconciler) wipe(ctx context.Context, key client.ObjectKey, c *cluster, o *observation) (*departurecap.Hold, time.Time) {
	for _, h := range o.fleet.Holds {
		if h.Reason != v1alpha1.DeparturesHeldReason {
			return nil, time.Time{}
		}
	}
	if !r.WipeGuard || r.Actuate.Suppresses() {
		return nil, time.Time{}
	}
	held, next := r.quarantine(ctx, key, c, o)
	if !held {
		return nil, next
	}
	return &departurecap.Hold{
		Reason: v1alpha1.WipeQuarantineReason, Unscheduled: true,
		Message: "Nearly all machines of the Cluster, or of all Clusters, would leave at once. Three checks must confirm it first (20s). If it is a mistake, run kubectl 5spot hold-departures now",
	}, next
}
