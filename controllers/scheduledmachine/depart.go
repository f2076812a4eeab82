// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/extensions"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// depart starts a graceful departure. If no extension and no departure step applies, it removes 5-Spot's hooks in the
// write of the departure record, before the deletion. With hooks on it, Cluster API would reconcile the Machine twice,
// a second apart. Package machinehook removes the hooks in all other cases: if an extension or step applies, or another
// client deleted the Machine.
func (r *Reconciler) depart(ctx context.Context, s *scope, d lifecycle.Decision) error {
	m, leave := s.children.Machine, r.departureAction(s, d)
	if m == nil {
		return leave.Depart(ctx, &s.children)
	}
	if err := leave.Permit(ctx, m); err != nil {
		return err
	}
	key, now := client.ObjectKeyFromObject(s.scheduled), r.Clock.Now()
	if r.departed.is(key, m.UID, now) {
		return nil // It was deleted here; the cache does not show it yet.
	}
	asked, err := r.countStepsAndExtensions(ctx, m)
	if err != nil {
		// The hooks stay. Package machinehook looks up extensions and steps again when Cluster API waits at the hooks.
		ctrl.LoggerFrom(ctx).Error(err, "Looking for extensions and steps before Machine leaves")
	} else if asked == 0 {
		hooks := []string{v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation}
		if err := kinds.IgnoreNoObject(leave.RemoveHooks(ctx, m, actuate.Waits{}, hooks...)); err != nil {
			return err
		}
	}
	if err := leave.Depart(ctx, &s.children); err != nil {
		return err
	}
	r.departed.add(key, m.UID, now)
	return nil
}

// countStepsAndExtensions returns how many extensions and departure steps apply to a Machine.
func (r *Reconciler) countStepsAndExtensions(ctx context.Context, m *clusterv1.Machine) (int, error) {
	hooks, err := extensions.For(ctx, r.Reader, m.Namespace)
	if err != nil {
		return 0, err
	}
	steps, err := r.Steps.For(ctx, m)
	return len(hooks) + len(steps), err
}

// recentDeletions records the Machines that this process deleted, and when. The write of the departure record enqueues
// the object before the cache shows the deletion. A lost entry causes a second delete call.
type recentDeletions struct{ machines sync.Map }

// deletion is the latest delete call for a Machine.
type deletion struct {
	machine types.UID
	at      time.Time
}

// maxCacheLag bounds the lag of the cache. A Machine that shows no deletion after that time is a new state, for example
// a restored Machine.
const maxCacheLag = 10 * time.Second

func (d *recentDeletions) is(scheduled types.NamespacedName, machine types.UID, now time.Time) bool {
	v, _ := d.machines.Load(scheduled)
	last, ok := v.(deletion)
	return ok && last.machine == machine && !now.Before(last.at) && now.Sub(last.at) < maxCacheLag
}

func (d *recentDeletions) add(scheduled types.NamespacedName, machine types.UID, now time.Time) {
	d.machines.Store(scheduled, deletion{machine, now})
}

func (d *recentDeletions) forget(scheduled types.NamespacedName) { d.machines.Delete(scheduled) }
