// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// announce tells people of a change of phase that has been written, and when the
// machine is ready, which is none: a machine is Active while it joins.
func (r *Reconciler) announce(ctx context.Context, sm, before *v1alpha1.ScheduledMachine) {
	from, to := before.Status.Phase, sm.Status.Phase
	reason, kind := conditions.GetReason(sm, v1alpha1.ReadyCondition), corev1.EventTypeNormal
	if from == to {
		if to == v1alpha1.PhaseActive && reason == v1alpha1.MachineRunningReason && !conditions.IsTrue(before, v1alpha1.ReadyCondition) {
			r.Recorder.Eventf(sm, nil, kind, reason, "JoinCluster", "%s", sm.Status.Message)
		}
		return
	}
	transitions.WithLabelValues(string(from), string(to)).Inc()
	if to == v1alpha1.PhaseTerminated {
		killSwitchActivations.Inc()
	}
	ctrl.LoggerFrom(ctx).Info("Changed phase", "from", from, "to", to, "reason", reason)
	switch lifecycle.Phase(to) {
	case lifecycle.Error, lifecycle.Terminated, lifecycle.EmergencyRemove:
		kind = corev1.EventTypeWarning
	default:
	}
	r.Recorder.Eventf(sm, nil, kind, reason, "PhaseTransitionTo"+string(to), "%s -> %s: %s", cmp.Or(from, "New"), to, sm.Status.Message)
}
