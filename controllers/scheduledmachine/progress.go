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

// readable is how long a report of progress may wait for the next one. A machine that
// joins or leaves passes a dozen states, most of them within a second of another, and each
// would be a write that nobody reads. It is short enough for somebody who watches a drain.
// See ADR 0031.
const readable = 10 * time.Second

// mayWait reports whether a report may wait: it is only of progress, and nobody is late.
func (s *scope) mayWait(now time.Time) bool {
	m := s.children.Machine
	if m == nil {
		return false
	}
	deadline := children.DeadlineOf(m, s.scheduled, now)
	overdue := !deadline.IsZero() && !now.Before(deadline)
	return !overdue && !s.firstWord() && onlyProgress(s.before, s.scheduled)
}

// firstWord reports whether a departure step names its cause for the first time, where the last
// report says only that the Machine is being deleted.
func (s *scope) firstWord() bool {
	step := conditions.Get(s.children.Machine, v1alpha1.ReadyToLeaveCondition)
	return step != nil && step.Reason != v1alpha1.AskingReason &&
		conditions.GetReason(s.scheduled, v1alpha1.MachineReadyCondition) == step.Reason &&
		conditions.GetReason(s.before, v1alpha1.MachineReadyCondition) == clusterv1.MachineDeletingReason
}

// onlyProgress reports whether all that is new is how far a machine has come on a way
// that people know of: it is joining, or leaving with grace, as it was. Everything else is
// reported at once: phases, failures, what a schedule, a person or an owner changed, and
// that the machine is ready, or not any more.
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

// withoutProgress is the status without what changes on the way. That there is a Machine
// stays: what is looked up live depends on it. So does what is believed of its host: what is
// said of it later is held against that.
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
