// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// waitHelp maps the reason of MachineReady to advice about a deletion that waits.
var waitHelp = map[string]string{
	v1alpha1.WaitingForLoadBalancersReason: `wait; to let it go sooner, see "Shorten the wait" in docs/load-balancers.md`,
	v1alpha1.StoppingPodsReason:            `wait; see "Stop pods in order" in docs/load-balancers.md`,
	v1alpha1.WaitingForOperatorsReason:     `wait; see "When a machine of 5-Spot leaves" in docs/operators.md`,
	v1alpha1.WaitingForExtensionReason:     `wait; see "See what holds a Machine" in docs/extensions.md`,

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
	return waitHelp[c.Reason]
}
