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

// depart begins a graceful departure. Where nobody is to be asked before the Machine
// leaves, our hooks go in the write that records its departure, before its deletion: Cluster
// API would look at a Machine that has them twice, a second apart. Those of a Machine that
// somebody else deletes, or about whose leaving somebody is asked, are the business of
// package machinehook.
func (r *Reconciler) depart(ctx context.Context, s *scope, d lifecycle.Decision) error {
	m, leave := s.children.Machine, r.leave(s, d)
	if m == nil {
		return leave.Depart(ctx, &s.children)
	}
	if err := leave.Permit(ctx, m); err != nil {
		return err
	}
	key, now := client.ObjectKeyFromObject(s.scheduled), r.Clock.Now()
	if r.departed.is(key, m.UID, now) {
		return nil // The cache does not show it yet.
	}
	asked, err := r.asked(ctx, m)
	if err != nil {
		// Our hooks stay: who is asked is looked up again when Cluster API meets them.
		ctrl.LoggerFrom(ctx).Error(err, "Looking for extensions and steps before Machine leaves")
	} else if asked == 0 {
		hooks := []string{v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation}
		if err := kinds.IgnoreNoObject(leave.LetGo(ctx, m, actuate.Waits{}, hooks...)); err != nil {
			return err
		}
	}
	if err := leave.Depart(ctx, &s.children); err != nil {
		return err
	}
	r.departed.add(key, m.UID, now)
	return nil
}

// asked is how many extensions and steps are to be asked before a Machine leaves.
func (r *Reconciler) asked(ctx context.Context, m *clusterv1.Machine) (int, error) {
	hooks, err := extensions.For(ctx, r.Reader, m.Namespace)
	if err != nil {
		return 0, err
	}
	steps, err := r.Steps.For(ctx, m)
	return len(hooks) + len(steps), err
}

// departed knows which Machines were deleted here, and when. The write before a deletion
// wakes us, and a cache that does not show the deletion then is late. It may be lost: the
// Machine is then deleted twice.
type departed struct{ machines sync.Map }

// deletion is that of a Machine.
type deletion struct {
	machine types.UID
	at      time.Time
}

// unseen bounds how long a cache may be late. After that a Machine that is not being deleted
// is another state of the world, such as a restored one.
const unseen = 10 * time.Second

func (d *departed) is(scheduled types.NamespacedName, machine types.UID, now time.Time) bool {
	v, _ := d.machines.Load(scheduled)
	last, ok := v.(deletion)
	return ok && last.machine == machine && !now.Before(last.at) && now.Sub(last.at) < unseen
}

func (d *departed) add(scheduled types.NamespacedName, machine types.UID, now time.Time) {
	d.machines.Store(scheduled, deletion{machine, now})
}

func (d *departed) forget(scheduled types.NamespacedName) { d.machines.Delete(scheduled) }
