// SPDX-License-Identifier: Apache-2.0

package nodetaints

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
)

// report writes appliedNodeTaints and the condition, if either changed.
func (r *Reconciler) report(ctx context.Context, s *scope, d nodetaints.Decision, actErr error) error {
	if d.Outcome == nodetaints.Leaving {
		return nil // Nothing was written to the Node.
	}
	sm := s.scheduled
	before := sm.DeepCopy()
	switch {
	case actErr != nil, d.Outcome == nodetaints.Unseen, d.Outcome == nodetaints.Unreadable:
		// The applied taints are unknown, so that the old value stays.
	default:
		sm.Status.AppliedNodeTaints = apiTaints(d.Applied)
	}
	if s.silent(d, actErr) {
		conditions.Delete(sm, v1alpha1.NodeTaintedCondition)
	} else {
		c := s.condition(d, actErr)
		c.Type, c.Message, c.LastTransitionTime = v1alpha1.NodeTaintedCondition, clip.Message(c.Message), metav1.NewTime(r.Clock.Now())
		conditions.Set(sm, c)
	}
	return r.Actuate.PatchStatus(ctx, sm, before)
}

// silent reports whether the condition has nothing to report: no taints to apply, and none to remove.
func (s *scope) silent(d nodetaints.Decision, actErr error) bool {
	if len(s.scheduled.Spec.NodeTaints) > 0 {
		return false
	}
	switch d.Outcome {
	case nodetaints.Nothing:
		return true
	case nodetaints.Write:
		return actErr == nil
	case nodetaints.Unseen:
		return !conditions.Has(s.scheduled, v1alpha1.NodeTaintedCondition)
	default:
		return false
	}
}

func (s *scope) condition(d nodetaints.Decision, actErr error) metav1.Condition {
	if actErr != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.PatchFailedReason, Message: actErr.Error()}
	}
	switch d.Outcome {
	case nodetaints.NoNode:
		return metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.NoNodeYetReason,
			Message: "There is no Node yet: taints are applied once it is ready",
		}
	case nodetaints.Unseen:
		return metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.NotConnectedReason,
			Message: "The workload cluster is not connected: the taints of the Node are unknown; status.appliedNodeTaints shows what was seen last",
		}
	case nodetaints.NotReady:
		return metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.NodeNotReadyReason,
			Message: "Node " + s.node.Name + " is not ready: its taints are changed when it is",
		}
	case nodetaints.Conflicted:
		return metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.TaintOwnershipConflictReason,
			Message: "Node " + s.node.Name + ": " + d.Err.Error(),
		}
	case nodetaints.Unreadable:
		return metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.TaintOwnershipConflictReason,
			Message: "Node " + s.node.Name + ": " + nodetaints.UnreadableMessage(v1alpha1.NodeAppliedTaintsAnnotation, d.Err),
		}
	default:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.TaintsAppliedReason,
			Message: "Node " + s.node.Name + " has every taint of spec.nodeTaints",
		}
	}
}

func apiTaints(list []nodetaints.Taint) []v1alpha1.AppliedNodeTaint {
	var taints []v1alpha1.AppliedNodeTaint
	for _, t := range list {
		taints = append(taints, v1alpha1.AppliedNodeTaint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return taints
}
