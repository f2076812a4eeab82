// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// announce records an Event for a phase change that has been written. Two changes without a new phase get an Event,
// too: the machine becomes ready while Active, and a tool has lent it again.
func (r *Reconciler) announce(ctx context.Context, sm, before *v1alpha1.ScheduledMachine) {
	if c := conditions.Get(sm, v1alpha1.LentAgainCondition); c != nil && !conditions.IsTrue(before, c.Type) {
		r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.LentAgainEvent, "LendAgain", "%s", c.Message)
	}
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
	if to == v1alpha1.PhaseError || to == v1alpha1.PhaseTerminated || to == v1alpha1.PhaseEmergencyRemove || reason == v1alpha1.HostClaimedReason {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(sm, nil, kind, reason, "PhaseTransitionTo"+string(to), "%s -> %s: %s", cmp.Or(from, "New"), to, sm.Status.Message)
}

// announceRejected records one Event for each rejected part of the Machine's host data.
func (r *Reconciler) announceRejected(ctx context.Context, s *scope) {
	for _, n := range r.rejections.ReportNew(ctx, client.ObjectKeyFromObject(s.scheduled), s.acceptedHost.Rejected) {
		r.Recorder.Eventf(s.scheduled, nil, corev1.EventTypeWarning, v1alpha1.RecordRejectedEvent, "ScreenRecords", "%s", n.Message)
	}
}

// announceHost records an Event when the reason of the condition HostClaimed changes. It records none if the Event of a
// phase change reports the same.
func (r *Reconciler) announceHost(sm, before *v1alpha1.ScheduledMachine) {
	c := conditions.Get(sm, v1alpha1.HostClaimedCondition)
	announced := sm.Status.Phase != before.Status.Phase && conditions.GetReason(sm, v1alpha1.ReadyCondition) == v1alpha1.HostClaimedReason
	if !announced && c != nil && c.Reason != conditions.GetReason(before, v1alpha1.HostClaimedCondition) {
		r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.HostClaimedEvent, "CompareHosts", "%s", c.Message)
	}
}
