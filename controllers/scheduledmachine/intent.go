// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// intent is what every intent about this machine has in common.
func (r *Reconciler) intent(s *scope) actuate.Intent {
	now := r.Clock.Now()
	return actuate.Intent{
		At: now, Machine: client.ObjectKeyFromObject(s.scheduled), Cluster: workload.ClusterKey(s.scheduled), Trigger: s.trigger(now),
	}
}

// trigger is what made the decision: a person, or an edge of the schedule, which is known
// by the next one.
func (s *scope) trigger(now time.Time) string {
	sm := s.scheduled
	_, change := s.answer(now)
	switch {
	case !sm.DeletionTimestamp.IsZero():
		return "deleted " + utc(sm.DeletionTimestamp.Time)
	case sm.Spec.KillSwitch:
		return fmt.Sprint("generation ", sm.Generation)
	default:
		return "until " + utc(change)
	}
}

// leave is how a machine is taken away for a decision.
func (r *Reconciler) leave(s *scope, d lifecycle.Decision) actuate.Action {
	i := r.intent(s)
	i.Reason, i.Grace = v1alpha1.DepartureReason(d.Cause), children.GraceOf(s.scheduled)
	i.Lane, i.Cycle = s.lane(d, i.At), s.verdict.Cycle
	return r.Actuate.For(i)
}

// joining is why an object of the machine is made.
func (r *Reconciler) joining(s *scope) actuate.Intent {
	i := r.intent(s)
	i.Kind, i.Why = audit.Join, "WindowOpen"
	return i
}

// replacing is why one is deleted that was made from an older spec.
func (r *Reconciler) replacing(s *scope) actuate.Intent {
	i := r.intent(s)
	i.Reason = v1alpha1.MachineReplaced
	return i
}

// onNode is why the Node of a machine that is gone is deleted.
func (r *Reconciler) onNode(s *scope) actuate.Intent {
	i := r.intent(s)
	i.Kind, i.Why = audit.NodePatch, "MachineGone"
	return i
}
