// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/roster"
)

// A burst is what the planner knows of kill switches that wait because many of a Cluster were
// turned on at once. It only looks: nobody waits for it, who may go is known to the roster, and
// each goes by itself when it has waited for long enough. The zero value knows of none.
type burst struct {
	// looked is when the API server was last asked, whether it answered or not.
	looked time.Time
	// waiting is how many wait.
	waiting int
}

// confirm asks the API server itself whether the kill switches are still on that wait, and
// returns when to ask again; zero is never. A list that fails is no look.
func (r *Reconciler) confirm(ctx context.Context, key client.ObjectKey, c *cluster, now time.Time) (next time.Time) {
	b := r.Roster.Burst(key, now)
	if b.Waiting > 0 && now.Sub(c.looked).Abs() >= rails.Apart { // A clock that was set back keeps nobody.
		switches, err := r.killSwitches(ctx, key)
		now = r.Clock.Now() // What was turned on meanwhile has been seen since.
		c.looked = now
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing ScheduledMachines to confirm that many kill switches are on")
		} else {
			b = r.Roster.Confirm(key, switches, now)
		}
	}
	c.waiting = b.Waiting
	if b.Waiting == 0 {
		return time.Time{}
	}
	r.tell(ctx, key, c, now, v1alpha1.KillSwitchBurstEngagedEvent,
		"More kill switches are turned on within 10 s than are served at once, which is %d of %d. The others wait until that has been confirmed, for 30 s at most: if it is a mistake, turn them off now",
		b.AtOnce, b.Members)
	if b.Next.After(now) {
		return b.Next
	}
	return now.Add(rails.Apart - min(now.Sub(c.looked).Abs(), rails.Apart))
}

// killSwitches are those of a Cluster as the API server shows them.
func (r *Reconciler) killSwitches(ctx context.Context, key client.ObjectKey) (map[types.NamespacedName]roster.Switch, error) {
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Live.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return nil, err
	}
	switches := map[types.NamespacedName]roster.Switch{}
	for i := range list.Items {
		if sm := &list.Items[i]; sm.Spec.ClusterName == key.Name {
			switches[client.ObjectKeyFromObject(sm)] = roster.Switch{Scheduled: sm.UID, Generation: sm.Generation, On: sm.Spec.KillSwitch}
		}
	}
	return switches, nil
}
