// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// program returns the pattern of the program that caused the request, empty if no program did.
func program(r v1alpha1.ReclaimRecord) string {
	pattern, ok := strings.CutPrefix(r.Reason, reclaim.Reason(""))
	if !ok || r.ByPerson() {
		return ""
	}
	return pattern
}

// origin returns where the request comes from, for the JSON output.
func origin(r v1alpha1.ReclaimRecord) string {
	switch {
	case r.Lost():
		return "unknown"
	case r.ByPerson():
		return "person"
	case program(r) != "":
		return "program"
	default:
		return "node"
	}
}

// requestOf returns the record in the form of the JSON output.
func requestOf(r v1alpha1.ReclaimRecord) request {
	return request{By: origin(r), Program: program(r), Reason: r.Why(), Node: r.Node, RequestedAt: r.RequestedAt}
}

// sentence states the origin of the request and its reason.
func sentence(r v1alpha1.ReclaimRecord) string {
	switch {
	case r.PropagatedFrom != "":
		return "its owner asked for the same host through " + r.PropagatedFrom + ": " + r.Why()
	case r.Lost(), r.ByPerson():
		return r.Why()
	case program(r) != "":
		return "its owner started a program that matches " + program(r)
	default:
		return "asked on the Node: " + r.Why()
	}
}

// paused reports whether the object is paused, or whether the controller has observed that its Cluster is.
func paused(m *v1alpha1.ScheduledMachine) bool {
	return annotations.HasPaused(m) || conditions.IsTrue(m, clusterv1.PausedCondition)
}

// gateOf returns the condition DepartureGated if it is true, otherwise nil. It is true while a rail holds a machine
// that should leave.
func gateOf(m *v1alpha1.ScheduledMachine) *metav1.Condition {
	return withStatus(m, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue)
}

// withStatus returns the condition if it has that status, otherwise nil.
func withStatus(m *v1alpha1.ScheduledMachine, condition string, status metav1.ConditionStatus) *metav1.Condition {
	if c := conditions.Get(m, condition); c != nil && c.Status == status {
		return c
	}
	return nil
}

// suppressed returns the condition with the reason ActuationPaused, nil if there is none. It reports an action that the
// manager's pause suppressed. paused reports a pause of the object.
func suppressed(m *v1alpha1.ScheduledMachine) *metav1.Condition {
	for _, c := range []*metav1.Condition{gateOf(m), conditions.Get(m, v1alpha1.ReadyCondition)} {
		if c != nil && c.Reason == v1alpha1.ActuationPausedReason {
			return c
		}
	}
	return nil
}

// gone reports whether the controller has observed the latest spec and no Machine or infrastructure machine exists.
func gone(m *v1alpha1.ScheduledMachine) bool {
	return m.Status.ObservedGeneration >= m.Generation && m.Status.MachineRef == nil && m.Status.InfrastructureRef == nil
}

// offNow returns why a machine stays away. With resumeAfterReclaim: OnResume its schedule may be on.
func offNow(m *v1alpha1.ScheduledMachine) string {
	if m.AwaitsResume() {
		return "it stays out of the cluster until it is resumed, also in its window"
	}
	return "its schedule is off"
}

// waitHelp returns advice about the deletion of a machine that waits, or nothing. Cluster API reports DeletionCompleted
// for a moment in every deletion: the Machine waits only if the message names finalizers.
func waitHelp(m *v1alpha1.ScheduledMachine) string {
	switch reason := conditions.GetReason(m, v1alpha1.MachineReadyCondition); reason {
	case clusterv1.MachineDeletingWaitingForPreDrainHookReason, clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		return "wait for the owner of the hook that Because or Note names"
	case clusterv1.MachineDeletingDeletionCompletedReason:
		if !strings.Contains(conditions.GetMessage(m, v1alpha1.MachineReadyCondition), "finalizers") {
			return ""
		}
		return "wait for the owner of the finalizer that Because or Note names"
	default:
		return v1alpha1.WaitAdvice()[reason]
	}
}

// removalDelayNotes returns the controllers' messages about what delays the removal of a machine. It omits messages
// that shown contains.
func removalDelayNotes(m *v1alpha1.ScheduledMachine, shown string) []string {
	r, requested := m.ReclaimRequest()
	removed := requested && !paused(m) || m.Spec.KillSwitch || !m.DeletionTimestamp.IsZero() || m.Status.Phase == v1alpha1.PhaseShuttingDown
	if !removed || gone(m) {
		return nil
	}
	var notes []string
	for _, condition := range []string{v1alpha1.ReadyCondition, v1alpha1.MachineReadyCondition} {
		c := withStatus(m, condition, metav1.ConditionFalse)
		if c == nil || c.Message == "" || requested && c.Message == r.Where() || strings.Contains(shown, c.Message) {
			continue
		}
		shown += c.Message
		notes = append(notes, c.Message)
	}
	return notes
}
