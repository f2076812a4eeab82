// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// progressInterval is the shortest interval between two reports of progress. A machine that joins or leaves passes a
// dozen states, most within a second of each other. In a mass start, a write for each takes the API server's time; 10 s
// are enough for a person who watches a drain. The delay is in memory, and no decision depends on it.
const progressInterval = 10 * time.Second

// mayDefer reports whether the status write may be deferred: it reports only progress, and the departure is within its
// budget.
func (s *scope) mayDefer(now time.Time) bool {
	m := s.children.Machine
	if m == nil {
		return false
	}
	deadline := children.DeadlineOf(m, s.scheduled, now)
	overdue := !deadline.IsZero() && !now.Before(deadline)
	return !overdue && !s.firstStepReport() && onlyProgress(s.before, s.scheduled)
}

// firstStepReport reports whether a departure step states its cause for the first time, after a report that the Machine
// is being deleted.
func (s *scope) firstStepReport() bool {
	step := conditions.Get(s.children.Machine, v1alpha1.ReadyForDeletionCondition)
	return step != nil && step.Reason != v1alpha1.WaitingForResponseReason &&
		conditions.GetReason(s.scheduled, v1alpha1.MachineReadyCondition) == step.Reason &&
		conditions.GetReason(s.before, v1alpha1.MachineReadyCondition) == clusterv1.MachineDeletingReason
}

// onlyProgress reports whether the status differs only in the progress of a machine that joins, or leaves gracefully.
// All other changes are reported at once: phases, failures, changes of the schedule, a person or an owner, and a change
// of readiness.
func onlyProgress(before, after *v1alpha1.ScheduledMachine) bool {
	switch after.Status.Phase {
	case v1alpha1.PhaseActive, v1alpha1.PhaseShuttingDown:
	default:
		return false
	}
	return conditions.IsFalse(after, v1alpha1.ReadyCondition) &&
		!equality.Semantic.DeepEqual(before.Status, after.Status) &&
		equality.Semantic.DeepEqual(withoutProgress(before), withoutProgress(after))
}

// withoutProgress returns the status without the fields that change during progress. MachineRef stays, because live
// reads depend on it. The accepted host data stays, because later host data is checked against it.
func withoutProgress(sm *v1alpha1.ScheduledMachine) v1alpha1.ScheduledMachineStatus {
	sm = sm.DeepCopy()
	conditions.Delete(sm, v1alpha1.MachineReadyCondition)
	if ready := conditions.Get(sm, v1alpha1.ReadyCondition); ready != nil {
		conditions.Set(sm, metav1.Condition{
			Type: ready.Type, Status: ready.Status, Reason: ready.Reason, LastTransitionTime: ready.LastTransitionTime,
		})
	}
	st := sm.Status
	st.Message = ""
	st.BootstrapRef, st.InfrastructureRef = nil, nil
	return st
}
