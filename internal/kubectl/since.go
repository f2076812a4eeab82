// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// since returns when a state began, nil where no field of the status records it. A condition keeps the time of its last
// change of status, and Ready does not change between all states.
func since(m *v1alpha1.ScheduledMachine, s state) *metav1.Time {
	switch s {
	case stateDeleting:
		return m.DeletionTimestamp
	case stateHeld:
		return changed(gateOf(m))
	case statePaused:
		return cmp.Or(changed(suppressed(m)), changed(withStatus(m, clusterv1.PausedCondition, metav1.ConditionTrue)))
	case stateUnreadable:
		return conditions.GetLastTransitionTime(m, v1alpha1.ScheduledCondition)
	case stateBlocked:
		return cmp.Or(changed(invalid(m)), changed(hostClaimed(m)))
	case stateJoining:
		return m.Status.LastScheduledTime
	case stateRunning, stateNotReady:
		return conditions.GetLastTransitionTime(m, v1alpha1.ReadyCondition)
	default:
		return nil
	}
}

func changed(c *metav1.Condition) *metav1.Time {
	if c == nil {
		return nil
	}
	return &c.LastTransitionTime
}
