// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// act carries out one step; a request that was written down is acted upon in the
// same breath.
func (r *Reconciler) act(ctx context.Context, s *scope, step lifecycle.Step) error {
	switch step {
	case lifecycle.Rest, lifecycle.Await:
		return nil
	case lifecycle.Remember:
		if err := r.remember(ctx, s); err != nil {
			return err
		}
		err := r.eject(ctx, s)
		// Only now: an Event takes the API server's time, for which the owner waits.
		r.tell(s)
		return err
	case lifecycle.Eject:
		// A person wrote the request down, and nobody has told of it yet.
		begins := s.remembered() && s.request().ByPerson() && !s.deleted()
		if err := r.eject(ctx, s); err != nil || !begins {
			return err
		}
		r.tell(s)
		return nil
	case lifecycle.Disarm:
		return r.disarm(ctx, s)
	case lifecycle.Clear:
		return r.clear(ctx, s)
	default:
		return fmt.Errorf("unknown step %q", step)
	}
}

// remember writes the request down on the ScheduledMachine, where neither a crash
// nor the Node's end nor clusterctl move loses it.
func (r *Reconciler) remember(ctx context.Context, s *scope) error {
	sm, record := s.scheduled, recordOf(s.node)
	before := sm.DeepCopy()
	if sm.Annotations == nil {
		sm.Annotations = map[string]string{}
	}
	sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = record.String()
	if err := r.Actuate.Patch(ctx, sm, before); err != nil {
		return fmt.Errorf("remembering request: %w", err)
	}
	r.observeStage(record, stageSeen)
	ctrl.LoggerFrom(ctx).Info("Reclaiming machine for its owner", "Node", record.Node, "reason", record.Why())
	return nil
}

// tell says that a reclaim begins.
func (r *Reconciler) tell(s *scope) {
	sm := s.scheduled
	reclaims.WithLabelValues(sm.Namespace + "/" + sm.Spec.ClusterName).Inc()
	r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimEvent, "EmergencyReclaim", "%s", s.request().Requested())
}

func (r *Reconciler) eject(ctx context.Context, s *scope) error {
	deleted := s.deleted()
	if err := r.Actuate.Remove(ctx, s.children.Children, r.Hooks); err != nil {
		return fmt.Errorf("ejecting machine: %w", err)
	}
	if !deleted {
		r.observeStage(s.request(), stageDeleted)
	}
	return nil
}

// disarm turns the schedule off and forgets the request in one write: between the
// two, the machine would be taken away again, or come back. What happened stays
// on record, so that a person can read it a week later. See ADR 0003.
func (r *Reconciler) disarm(ctx context.Context, s *scope) error {
	sm, record := s.scheduled, s.request()
	before := sm.DeepCopy()
	sm.Spec.Schedule.Enabled = new(false)
	delete(sm.Annotations, v1alpha1.EmergencyReclaimAnnotation)
	sm.Annotations[v1alpha1.ReclaimedAnnotation] = record.String()
	if err := r.Actuate.Patch(ctx, sm, before); err != nil {
		return fmt.Errorf("turning schedule off: %w", err)
	}
	r.observeStage(record, stageGone)
	ctrl.LoggerFrom(ctx).Info("Gave machine back and turned its schedule off", "Node", record.Node, "reason", record.Why())
	r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimDisabledScheduleEvent, "EmergencyReclaimDisableSchedule",
		"Schedule turned off by emergency reclaim (%s), so that the machine does not come back while its owner uses it. "+
			"To lend it again: kubectl -n %s patch scheduledmachine/%s --type merge -p '{\"spec\":{\"schedule\":{\"enabled\":true}}}'",
		record.Why(), sm.Namespace, sm.Name)
	return nil
}

// request is the request that is being served.
func (s *scope) request() v1alpha1.ReclaimRecord {
	return v1alpha1.ParseReclaimRecord(s.scheduled.Annotations[v1alpha1.EmergencyReclaimAnnotation])
}

// clear takes a request that needs no answer any more off its Node. The agent
// asks again if its reason still holds, so nothing is lost; the lock keeps a
// newer request from being taken off unseen.
func (r *Reconciler) clear(ctx context.Context, s *scope) error {
	key := client.ObjectKey{Namespace: s.scheduled.Namespace, Name: s.scheduled.Spec.ClusterName}
	remote, err := r.ClusterCache.GetClient(ctx, key)
	if err != nil {
		return ignoreNotConnected(err)
	}
	before := s.node.DeepCopy()
	for _, annotation := range []string{
		reclaimapi.RequestedAnnotation, reclaimapi.ReasonAnnotation, reclaimapi.RequestedAtAnnotation,
	} {
		delete(s.node.Annotations, annotation)
	}
	if err := actuate.New(remote).PatchLocked(ctx, s.node, before); err != nil && !actuate.Gone(err) {
		return fmt.Errorf("clearing request: %w", err)
	}
	return nil
}
