// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// intent returns the fields that all intents about this machine share, for the audit log.
func (r *Reconciler) intent(s *scope) actuate.Intent {
	return actuate.Intent{At: r.Clock.Now(), Machine: client.ObjectKeyFromObject(s.scheduled), Cluster: workload.ClusterKey(s.scheduled)}
}

// actuator returns the Actuator for writes that a kill switch waits for.
func (r *Reconciler) actuator(sm *v1alpha1.ScheduledMachine) *actuate.Actuator {
	if sm.Spec.KillSwitch {
		return cmp.Or(r.Unlimited, r.Actuate)
	}
	return r.Actuate
}

// departureAction returns the Action that removes the machine for a Decision.
func (r *Reconciler) departureAction(s *scope, d lifecycle.Decision) actuate.Action {
	i := r.intent(s)
	i.Reason, i.Grace = v1alpha1.DepartureReason(d.Cause), children.GraceOf(s.scheduled)
	i.Lane = s.lane(d, i.At)
	return r.actuator(s.scheduled).For(i)
}

// joining is the intent for the creation of a child.
func (r *Reconciler) joining(s *scope) actuate.Intent {
	i := r.intent(s)
	i.Kind, i.Why = audit.Join, "WindowOpen"
	return i
}
