// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// agentDetectionNotes returns notes on whether the agent detects the owner's programs. It returns none if no controller
// has reported on the machine, for example because its spec lists no programs, or if the owner has requested it. 5-Spot
// removes the agent when the Machine is being deleted.
func agentDetectionNotes(m *v1alpha1.ScheduledMachine, giveBack string) []string {
	if c := withStatus(m, v1alpha1.WorkloadClusterReachableCondition, metav1.ConditionFalse); c != nil && m.Status.MachineRef != nil {
		return []string{notDetectingNote + giveBack, c.Message}
	}
	c, ref := conditions.Get(m, v1alpha1.OwnerProtectedCondition), m.Status.MachineRef
	switch {
	case c == nil, c.Reason == v1alpha1.NotConnectedReason, m.BeingReclaimed():
		return nil
	case ref != nil && ref.DeletionTimestamp != nil:
		return []string{notDetectingNote + giveBack}
	case c.Status == metav1.ConditionTrue:
		notes := []string{"the machine notices when one of the agreed programs starts: " + strings.Join(m.Spec.KillIfCommands, ", ")}
		if c.Reason == v1alpha1.HoldUnavailableReason {
			notes = append(notes, c.Message)
		}
		return notes
	case c.Status == metav1.ConditionFalse:
		return []string{notDetectingNote + giveBack, c.Message}
	default:
		return []string{"it is unknown whether the machine notices when its owner starts a program; this still works: " + giveBack, c.Message}
	}
}

const notDetectingNote = "the machine does not notice when its owner starts a program; this still works: "
