// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// announce tells people of a change of phase that has been written.
func (r *Reconciler) announce(ctx context.Context, sm *v1alpha1.ScheduledMachine, from v1alpha1.Phase) {
	to := sm.Status.Phase
	if from == to {
		return
	}
	transitions.WithLabelValues(string(from), string(to)).Inc()
	if to == v1alpha1.PhaseTerminated {
		killSwitchActivations.Inc()
	}
	ctrl.LoggerFrom(ctx).Info("Changed phase", "from", from, "to", to, "reason", conditions.GetReason(sm, v1alpha1.ReadyCondition))
	if from == "" {
		from = "New"
	}
	kind := corev1.EventTypeNormal
	switch lifecycle.Phase(to) {
	case lifecycle.Error, lifecycle.Terminated, lifecycle.EmergencyRemove:
		kind = corev1.EventTypeWarning
	default:
	}
	note := string(from) + " -> " + string(to) + ": " + sm.Status.Message
	r.Recorder.Eventf(sm, nil, kind, conditions.GetReason(sm, v1alpha1.ReadyCondition),
		"PhaseTransitionTo"+string(to), "%s", note)
}
