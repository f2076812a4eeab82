// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestHeldDeparturesLeaveOwnersAlone holds the departures of a Cluster with the plugin, and releases them.
func TestHeldDeparturesLeaveOwnersAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, "held")
	closes, deleted, owned, killed := l.running("closes", nil), l.running("deleted", nil), l.running("owned", nil), l.running("killed", nil)
	returned := l.running("returned", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{"java"} })
	alive, node, returnedNode := []family{l.family(closes), l.family(deleted), l.family(returned)}, l.node(owned), l.node(returned)
	l.waitConfigured(workload, returnedNode.Name, "java")
	engineer := l.person("engineer", rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: []string{"patch"}})

	wantInOrder(t, engineer.run("hold-departures", l.Key.Name, "--reason", "INC-12"), "its departures are held", "release-departures "+l.Key.Name)
	l.closeWindow(closes)
	l.delete(deleted)
	l.delete(returned)
	for _, sm := range []*v1alpha1.ScheduledMachine{closes, deleted, returned} {
		l.waitCondition(sm, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.DeparturesHeldReason, "INC-12", "release-departures "+l.Key.Name)
	}
	l.askBack(node, "java")
	l.wantReclaimed(owned, "java")
	l.killSwitch(killed, true)
	l.waitPhase(killed, terminated, metav1.ConditionTrue)
	holds(t, 2*shortly, func(ctx context.Context) error {
		for _, f := range alive {
			if err := unchanged(ctx, f.objects()...); err != nil {
				return err
			}
		}
		return nil
	})
	l.waitConfigured(workload, returnedNode.Name, "java") // The agent still looks for the owner's programs.
	l.askBack(returnedNode, "java")
	l.waitGone(returned)
	wantInOrder(t, engineer.run("release-departures", l.Key.Name), "its departures are released")
	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.waitGone(deleted)
}
