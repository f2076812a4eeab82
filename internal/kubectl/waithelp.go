// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// waitHelp maps Cluster API's reasons in MachineReady to advice about a deletion that waits. v1alpha1.WaitAdvice has
// 5-Spot's.
var waitHelp = map[string]string{
	clusterv1.MachineDeletingWaitingForPreDrainHookReason:     "wait for the owner of the hook that Because or Note names",
	clusterv1.MachineDeletingWaitingForPreTerminateHookReason: "wait for the owner of the hook that Because or Note names",
	clusterv1.MachineDeletingDeletionCompletedReason:          "wait for the owner of the finalizer that Because or Note names",
}

// waitHelpOf returns the advice for the deletion of a machine, or nothing. Cluster API reports DeletionCompleted for a
// moment in every deletion: the Machine waits only if the message names finalizers.
func waitHelpOf(m *v1alpha1.ScheduledMachine) string {
	c := conditions.Get(m, v1alpha1.MachineReadyCondition)
	if c == nil || c.Reason == clusterv1.MachineDeletingDeletionCompletedReason && !strings.Contains(c.Message, "finalizers") {
		return ""
	}
	return cmp.Or(v1alpha1.WaitAdvice()[c.Reason], waitHelp[c.Reason])
}
