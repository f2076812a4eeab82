// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// taints applies spec.nodeTaints to the Node, and removes taints that it applied earlier and that the spec no longer
// has. Package internal/nodetaints decides. If it is unknown which Node is the machine's, nothing changes.
func (r *Reconciler) taints(ctx context.Context, s *scope) error {
	if s.host.NodeRejected() {
		return nil
	}
	d := nodetaints.Decide(s.taintFacts())
	err := r.writeTaints(ctx, s, d)
	switch {
	case apierrors.IsConflict(err):
		return err // The cache does not have the newer Node yet.
	case actuate.IsSuppressed(err):
		return err // The Node and its report are unchanged.
	case actuate.Gone(err):
		return nil // The event of the Node's deletion triggers a reconcile.
	case workload.NotConnected(err):
		d, err = nodetaints.Decision{Outcome: nodetaints.Unseen}, nil
	}
	return errors.Join(err, client.IgnoreNotFound(r.reportTaints(ctx, s, d, err)))
}

// taintFacts converts the observed objects to the facts of the decision, which has no Kubernetes types.
func (s *scope) taintFacts() nodetaints.Facts {
	f := nodetaints.Facts{Unseen: s.disconnected, Leaving: s.leaving()}
	for _, t := range s.scheduled.Spec.NodeTaints {
		f.Desired = append(f.Desired, nodetaints.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if s.node == nil {
		return f
	}
	f.Node = &nodetaints.Node{Ready: util.IsNodeReady(s.node)}
	for _, t := range s.node.Spec.Taints {
		f.Node.Taints = append(f.Node.Taints, nodetaints.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if record, ok := s.node.Annotations[v1alpha1.NodeAppliedTaintsAnnotation]; ok {
		f.Node.Record = &record
	}
	return f
}

// writeTaints writes the taints and their record to the Node in one patch. The patch replaces the whole list, so that
// it needs the lock. Without the lock, a taint that another writer added meanwhile would be lost.
func (r *Reconciler) writeTaints(ctx context.Context, s *scope, d nodetaints.Decision) error {
	if d.Outcome != nodetaints.Write {
		return nil
	}
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, s.key)
	if err != nil {
		return err
	}
	before := s.node.DeepCopy()
	s.node.Spec.Taints = merge(d.Plan.Taints, before.Spec.Taints)
	if len(d.Plan.Applied) > 0 {
		metav1.SetMetaDataAnnotation(&s.node.ObjectMeta, v1alpha1.NodeAppliedTaintsAnnotation, nodetaints.Format(d.Plan.Applied))
	} else {
		delete(s.node.Annotations, v1alpha1.NodeAppliedTaintsAnnotation)
	}
	if err := remote.For(s.intent("Taints")).PatchLocked(ctx, s.node, before); err != nil {
		return fmt.Errorf("tainting: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Changed taints", "Node", s.node.Name, "applied", d.Plan.Applied)
	return nil
}

// intent returns the intent of a write for the Node.
func (s *scope) intent(why string) actuate.Intent {
	return actuate.Intent{Kind: audit.NodePatch, Why: why, At: s.now, Machine: s.request.NamespacedName, Cluster: s.key}
}

// merge returns the planned taints. A taint that the Node already has retains its timeAdded.
func merge(planned []nodetaints.Taint, current []corev1.Taint) []corev1.Taint {
	var taints []corev1.Taint
	for _, p := range planned {
		t := corev1.Taint{Key: p.Key, Value: p.Value, Effect: corev1.TaintEffect(p.Effect)}
		for i := range current {
			if current[i].MatchTaint(&t) {
				t.TimeAdded = current[i].TimeAdded
			}
		}
		taints = append(taints, t)
	}
	return taints
}

// reportTaints writes appliedNodeTaints and the condition, if either changed.
func (r *Reconciler) reportTaints(ctx context.Context, s *scope, d nodetaints.Decision, err error) error {
	if d.Outcome == nodetaints.Leaving {
		return nil // Nothing was written to the Node.
	}
	sm := s.scheduled
	before := sm.DeepCopy()
	switch {
	case err != nil, d.Outcome == nodetaints.Unseen, d.Outcome == nodetaints.Unreadable:
		// The applied taints are unknown, so that the old value stays.
	default:
		sm.Status.AppliedNodeTaints = nil
		for _, t := range d.Applied {
			sm.Status.AppliedNodeTaints = append(sm.Status.AppliedNodeTaints,
				v1alpha1.AppliedNodeTaint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
		}
	}
	if s.omitsTaints(d, err) {
		conditions.Delete(sm, v1alpha1.NodeTaintedCondition)
	} else {
		status, reason, message := s.taintReport(d, err)
		conditions.Set(sm, metav1.Condition{
			Type: v1alpha1.NodeTaintedCondition, Status: status, Reason: reason, Message: clip.Message(message),
			LastTransitionTime: metav1.NewTime(s.now),
		})
	}
	return r.Actuate.PatchStatus(ctx, sm, before)
}

// omitsTaints reports whether there is nothing to report: no taints to apply, and none to remove.
func (s *scope) omitsTaints(d nodetaints.Decision, err error) bool {
	if len(s.scheduled.Spec.NodeTaints) > 0 {
		return false
	}
	switch d.Outcome {
	case nodetaints.Nothing:
		return true
	case nodetaints.Write:
		return err == nil
	case nodetaints.Unseen:
		return !conditions.Has(s.scheduled, v1alpha1.NodeTaintedCondition)
	default:
		return false
	}
}

func (s *scope) taintReport(d nodetaints.Decision, err error) (status metav1.ConditionStatus, reason, message string) {
	if err != nil {
		return metav1.ConditionFalse, v1alpha1.PatchFailedReason, err.Error()
	}
	node := "Node " + s.host.Node
	switch d.Outcome {
	case nodetaints.NoNode:
		return metav1.ConditionUnknown, v1alpha1.NoNodeYetReason, "There is no Node yet: taints are applied once it is ready"
	case nodetaints.Unseen:
		return metav1.ConditionUnknown, v1alpha1.NotConnectedReason,
			"The workload cluster is not connected: the taints of the Node are unknown; status.appliedNodeTaints shows what was seen last"
	case nodetaints.NotReady:
		return metav1.ConditionFalse, v1alpha1.NodeNotReadyReason, node + " is not ready: its taints are changed when it is"
	case nodetaints.Conflicted:
		return metav1.ConditionFalse, v1alpha1.TaintOwnershipConflictReason, node + ": " + d.Err.Error()
	case nodetaints.Unreadable:
		return metav1.ConditionFalse, v1alpha1.TaintOwnershipConflictReason,
			node + ": " + nodetaints.UnreadableMessage(v1alpha1.NodeAppliedTaintsAnnotation, d.Err)
	default:
		return metav1.ConditionTrue, v1alpha1.TaintsAppliedReason, node + " has every taint of spec.nodeTaints"
	}
}
