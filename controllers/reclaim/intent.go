// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// intent returns the fields that all intents about this machine share, for the audit log.
func (r *Reconciler) intent(s *scope) actuate.Intent {
	record := s.ownerRequest()
	if s.node != nil && !s.scheduled.BeingReclaimed() && reclaimapi.Requested(s.node.Annotations) {
		record = recordOf(s.node)
	}
	return actuate.Intent{
		At: r.Clock.Now(), Machine: client.ObjectKeyFromObject(s.scheduled), Cluster: workload.ClusterKey(s.scheduled), By: record.Why(),
	}
}

// ejection returns the Action that ejects the machine for its owner.
func (r *Reconciler) ejection(s *scope) actuate.Action {
	i := r.intent(s)
	i.Reason = v1alpha1.ReclaimedByOwner
	return r.Actuate.For(i)
}

// permit returns an error if the step would eject the machine while writes are suppressed. The request stays on the
// Node or on the ScheduledMachine.
func (r *Reconciler) permit(ctx context.Context, s *scope, step lifecycle.Step) error {
	if m := s.children.Machine; m != nil && (step == lifecycle.RecordRequest || step == lifecycle.Eject) {
		return r.ejection(s).Permit(ctx, "deleting", m)
	}
	return nil
}

// pausedNote returns the message for a step that a pause suppresses, empty for a step for which no owner waits.
func pausedNote(step lifecycle.Step) string {
	const paused = "actuation is paused in the manager: "
	switch step {
	case lifecycle.RecordRequest, lifecycle.Eject:
		return paused + "nothing is carried out, and this machine is given back first when the pause ends"
	case lifecycle.RestoreRequest:
		return paused + "the request was removed from the ScheduledMachine, and is recorded again only if the Machine still exists when the pause ends. " +
			"Set spec.schedule.enabled to false to keep the machine from joining again"
	case lifecycle.DisableSchedule:
		return paused + "the Machine is gone, and the schedule is turned off when the pause ends"
	default:
		return ""
	}
}

// reportSuppressed records an Event, once per message: the reclaim waits because actuation is paused.
func (r *Reconciler) reportSuppressed(req ctrl.Request, s *scope, step lifecycle.Step) {
	note := pausedNote(step)
	if note == "" || !r.Actuate.ActuationPaused() {
		return
	}
	if r.ReclaimTracker.RecordStuck(req, note, note) {
		r.Recorder.Eventf(s.scheduled, nil, corev1.EventTypeWarning, v1alpha1.EmergencySuppressedEvent, "EmergencyReclaim",
			"The owner wants the machine, but %s", note)
	}
}
