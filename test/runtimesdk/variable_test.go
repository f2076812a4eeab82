// SPDX-License-Identifier: Apache-2.0

package runtimesdk

import (
	"fmt"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lend is a value of the variable: one machine, with these hours.
func lend(hours string) []clusterv1.ClusterVariable {
	return []clusterv1.ClusterVariable{{Name: "scheduledMachines", Value: apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `[{
		"name": "desk",
		"schedule": {"daysOfWeek": ["mon-sun"], "hoursOfDay": [%q]},
		"bootstrapTemplateRef": {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "PlaneConfigTemplate", "name": "plane"},
		"infrastructureTemplateRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "PlaneMachineTemplate", "name": "plane"}
	}]`, hours)}}}
}

// TestTheVariableIsDiscovered lends a machine by a ClusterClass that names 5-Spot's handlers in place of a schema.
func TestTheVariableIsDiscovered(t *testing.T) {
	t.Parallel()
	l := newLab(t, "variable", shared.Management)
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: "plane"}}
	l.must(shared.Management.Wait(l.ctx(), class, func() error {
		if len(class.Status.Variables) != 1 || class.Status.Variables[0].Name != "scheduledMachines" {
			return fmt.Errorf("it has the variables %v", class.Status.Variables)
		}
		return nil
	}))

	l.must(shared.Management.Client.Get(l.ctx(), client.ObjectKeyFromObject(l.cluster), l.cluster))
	wrong := l.cluster.DeepCopy()
	wrong.Spec.Topology.Variables = lend("")
	wrong.Spec.Topology.Variables[0].Value.Raw = []byte(`[{"name": "desk"}]`)
	if err := shared.Management.Client.Patch(l.ctx(), wrong, client.MergeFrom(l.cluster)); err == nil || !strings.Contains(err.Error(), "schedule") {
		t.Errorf("the schema refuses an item without a schedule, not %v", err)
	}

	l.edit(l.cluster, func() { l.cluster.Spec.Topology.Variables = lend("9-25") })
	l.must(shared.Management.Wait(l.ctx(), l.cluster, func() error {
		c := conditions.Get(l.cluster, clusterv1.ClusterTopologyReconciledCondition)
		if c == nil || !strings.Contains(c.Message, "scheduledMachines[0].schedule.hoursOfDay[0]") {
			return fmt.Errorf("nobody sees what is wrong: %v", c)
		}
		return nil
	}))

	l.edit(l.cluster, func() { l.cluster.Spec.Topology.Variables = lend("0-23") })
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name + "-desk"}}
	l.must(shared.WaitPhase(l.ctx(), sm, v1alpha1.PhaseActive, metav1.ConditionTrue))
	l.must(shared.Management.Wait(l.ctx(), l.cluster, func() error {
		if !conditions.IsTrue(l.cluster, clusterv1.ClusterTopologyReconciledCondition) {
			return fmt.Errorf("Cluster API does not go on: %v", conditions.Get(l.cluster, clusterv1.ClusterTopologyReconciledCondition))
		}
		return nil
	}))

	l.edit(l.cluster, func() { l.cluster.Spec.Topology.Variables = nil })
	l.must(shared.Management.WaitGone(l.ctx(), sm))
}
